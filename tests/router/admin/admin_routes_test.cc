#include "router/admin/admin_routes.h"

#include <gtest/gtest.h>

#include <set>

#include "common/json/json.h"
#include "tests/router/support/edge_harness.h"

namespace quire {
namespace {

class AdminTest : public testing::Test {
 protected:
  AdminTest() {
    edge.services.routes = &AdminRoutes();
    edge.services.admin = &actions;
    edge.services.keys = &edge.keys;
    WorkerStatus& worker = edge.pipeline.workers.emplace_back();
    worker.target = "127.0.0.1:9000";
    worker.phase = "ready";
    worker.index_state = "EXACT";
    worker.running = 3;
  }
  RawResponse Ask(const std::string& method, const std::string& path, const std::string& body = "",
                  const std::string& token = "admin-token-of-tests") {
    std::string request = method + " " + path + " HTTP/1.1\r\nHost: x\r\n";
    if (!token.empty()) request += "Authorization: Bearer " + token + "\r\n";
    request += "Content-Length: " + std::to_string(body.size()) + "\r\n\r\n" + body;
    return edge.Ask(request);
  }
  void Ended(const std::string& id, uint32_t prompt_tokens) {
    RequestRecord record;
    record.request_id = id;
    record.tenant = "acme";
    record.prompt_tokens = prompt_tokens;
    recent.Write(record);
  }

  EdgeHarness edge{{}, *KeyTable::OfPlainKeys({"admin-token-of-tests"}, "admin")};
  RecentRequests recent{edge.executor.clock(), nullptr};
  int drains = 0;
  AdminActions actions{recent, [this] { ++drains; }, [this] { return drains > 0; }};
};

TEST_F(AdminTest, CensusOfRoutesWithoutAndWithAWrongToken) {
  Ended("known", 1);
  struct Entry {
    std::string method, path, target, body;
    bool open;
  };
  const std::vector<Entry> census = {
      {"GET", "/livez", "/livez", "", true},
      {"GET", "/admin/workers", "/admin/workers", "", false},
      {"GET", "/admin/log-level", "/admin/log-level", "", false},
      {"PUT", "/admin/log-level", "/admin/log-level", R"({"level":"info"})", false},
      {"POST", "/admin/drain", "/admin/drain", "", false},
      {"GET", "/admin/requests", "/admin/requests", "", false},
      {"GET", "/admin/requests/", "/admin/requests/known", "", false},
  };
  std::set<std::string> listed, served;
  for (const Entry& entry : census) listed.insert(entry.method + entry.path);
  for (const Route& route : AdminRoutes().routes) {
    served.insert(std::string(route.method) + std::string(route.path));
  }
  EXPECT_EQ(listed, served);
  for (const Entry& entry : census) {
    SCOPED_TRACE(entry.method + entry.path);
    for (const char* wrong : {"", "key-of-acme"}) {
      EXPECT_EQ(Ask(entry.method, entry.target, entry.body, wrong).status, entry.open ? 200 : 401);
    }
  }
  EXPECT_EQ(drains, 0);
  for (const Entry& entry : census) {
    EXPECT_EQ(Ask(entry.method, entry.target, entry.body).status, 200) << entry.path;
  }
  // Nothing of the clients' side is served here.
  EXPECT_EQ(Ask("GET", "/v1/models").status, 404);
  EXPECT_EQ(Ask("GET", "/metrics").status, 404);
}

TEST_F(AdminTest, WorkersAsTheRouterSeesThem) {
  const auto body = json::Parse(Ask("GET", "/admin/workers").body);
  ASSERT_TRUE(body.ok());
  const json::Object& worker = body->at("workers").as_array()[0].as_object();
  EXPECT_EQ(worker.at("target").as_string(), "127.0.0.1:9000");
  EXPECT_EQ(worker.at("phase").as_string(), "ready");
  EXPECT_EQ(worker.at("index_state").as_string(), "EXACT");
  EXPECT_EQ(worker.at("running").to_number<int>(), 3);
  EXPECT_FALSE(body->at("draining").as_bool());
}

TEST_F(AdminTest, TheLogLevelIsSeenAndSet) {
  edge.log.SetLevel(LogLevel::kInfo);
  EXPECT_EQ(Ask("GET", "/admin/log-level").body, R"({"level":"info"})");
  EXPECT_EQ(Ask("PUT", "/admin/log-level", R"({"level":"debug"})").status, 200);
  EXPECT_TRUE(edge.log.Enabled(LogLevel::kDebug));
  for (const char* wrong : {"", "{}", R"({"level":"loud"})", R"({"level":3})", "[]"}) {
    EXPECT_EQ(Ask("PUT", "/admin/log-level", wrong).status, 400) << wrong;
  }
  EXPECT_EQ(edge.log.level(), LogLevel::kDebug);
}

TEST_F(AdminTest, DrainIsAsked) {
  const RawResponse drained = Ask("POST", "/admin/drain");
  EXPECT_EQ(drained.status, 200);
  EXPECT_EQ(drains, 1);
}

TEST_F(AdminTest, WhatBecameOfARequestIsToldWhileItIsAmongTheLast) {
  Ended("first", 1);
  Ended("twice", 2);
  Ended("twice", 3);
  const auto record = json::Parse(Ask("GET", "/admin/requests/twice").body);
  ASSERT_TRUE(record.ok());
  EXPECT_EQ(record->at("prompt_tokens").to_number<int>(), 3);  // the latest
  for (size_t i = 0; i + 3 < kMaxRecentRequests; ++i) Ended("other", 1);
  EXPECT_EQ(recent.entries().size(), kMaxRecentRequests);
  EXPECT_EQ(Ask("GET", "/admin/requests/first").status, 200);
  Ended("one more", 1);
  EXPECT_EQ(recent.entries().size(), kMaxRecentRequests);
  EXPECT_EQ(Ask("GET", "/admin/requests/first").status, 404);
  const auto list = json::Parse(Ask("GET", "/admin/requests").body);
  ASSERT_TRUE(list.ok());
  EXPECT_EQ(list->at("requests").as_array().size(), kMaxRecentRequests);
  EXPECT_EQ(list->at("requests").as_array()[0].at("request_id").as_string(), "one more");
  EXPECT_EQ(list->at("live_requests").to_number<int>(), 0);
}

TEST_F(AdminTest, ARunningRequestIsToldWithItsStateAndItsAttemptsTimes) {
  RunningRequest& running = edge.pipeline.running.emplace_back();
  running.state = "generating";
  running.record.request_id = "long-one";
  running.record.arrived_at = 1000;
  AttemptReport lost;
  lost.attempt = Attempt(1);
  lost.worker_id = "w-1";
  lost.end = AttemptEnd::kLost;
  lost.sent_at = 1010;
  lost.over_at = 1500;
  RecordAttempt(running.record, lost);
  AttemptReport now = lost;
  now.attempt = Attempt(2);
  now.worker_id = "w-2";
  now.end = AttemptEnd::kRunning;
  now.carry_on = true;
  now.sent_at = 1600;
  now.admitted_at = 1700;
  now.first_output_at = 1900;
  RecordAttempt(running.record, now);
  Ended("long-one", 7);  // an older one of the same id
  const auto told = json::Parse(Ask("GET", "/admin/requests/long-one").body);
  ASSERT_TRUE(told.ok());
  EXPECT_EQ(told->at("state").as_string(), "generating");
  EXPECT_FALSE(told->as_object().contains("reason"));
  const json::Array& attempts = told->at("attempts").as_array();
  ASSERT_EQ(attempts.size(), 2u);
  EXPECT_EQ(attempts[0].at("sent_us").to_number<int>(), 10);
  EXPECT_EQ(attempts[0].at("over_us").to_number<int>(), 500);
  EXPECT_EQ(attempts[1].at("end").as_string(), "running");
  EXPECT_TRUE(attempts[1].at("carry_on").as_bool());
  EXPECT_EQ(attempts[1].at("admitted_us").to_number<int>(), 700);
  EXPECT_EQ(attempts[1].at("first_output_us").to_number<int>(), 900);
  EXPECT_FALSE(attempts[1].as_object().contains("over_us"));
  const auto list = json::Parse(Ask("GET", "/admin/requests").body);
  EXPECT_EQ(list->at("requests").as_array()[0].at("state").as_string(), "generating");
  EXPECT_EQ(list->at("requests").as_array()[1].at("state").as_string(), "ended");
}

}  // namespace
}  // namespace quire
