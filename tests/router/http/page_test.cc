// The page's files, and the fleet that it shows: to whom, and what of it.
#include <gtest/gtest.h>

#include "common/json/json.h"
#include "router/http/fleet_view.h"
#include "router/http/page.h"
#include "tests/router/support/edge_harness.h"
#include "tests/router/support/test_keys.h"

namespace quire {
namespace {

constexpr char kToken[] = "an-operators-token";

std::string Bearer(const std::string& key) { return "Authorization: Bearer " + key + "\r\n"; }

TEST(Page, ItsFilesAreServedWithAPolicyThatKeepsItToItself) {
  EdgeHarness edge({}, TestKeys());
  for (const auto& [path, type] :
       std::vector<std::pair<std::string, std::string>>{{"/", "text/html"},
                                                        {"/page.css", "text/css"},
                                                        {"/page.js", "text/javascript"},
                                                        {"/chat.js", "text/javascript"},
                                                        {"/markdown.js", "text/javascript"}}) {
    const RawResponse file = edge.Ask(EdgeHarness::Get(path));
    EXPECT_EQ(file.status, 200) << path;
    EXPECT_TRUE(file.headers.at("content-type").starts_with(type)) << path;
    const std::string& policy = file.headers.at("content-security-policy");
    EXPECT_TRUE(policy.starts_with("default-src 'none'; script-src 'self';")) << policy;
    EXPECT_EQ(policy.find("unsafe"), std::string::npos);
    EXPECT_EQ(file.headers.at("x-content-type-options"), "nosniff");
    EXPECT_GT(file.body.size(), 500u);
    EXPECT_EQ(edge.Ask("HEAD " + path + " HTTP/1.1\r\nHost: x\r\n\r\n").body, "");
    EXPECT_EQ(edge.Ask(EdgeHarness::Post(path, "{}")).status, 405);
  }
  // "/" is itself alone: what lies below it is served by nobody.
  EXPECT_EQ(edge.Ask(EdgeHarness::Get("/page.css/x", Bearer(kAcmeKey))).status, 404);
  EXPECT_EQ(edge.Ask(EdgeHarness::Get("/index.html", Bearer(kAcmeKey))).status, 404);
}

TEST(Page, WhatItIsMadeOfIsWhatStandsInTheTree) {
  EXPECT_TRUE(Embedded_index_html().starts_with("<!doctype html>"));
  EXPECT_TRUE(Embedded_page_js().starts_with("\"use strict\";"));
  EXPECT_EQ(Embedded_index_html().find(" style="), std::string_view::npos)
      << "the policy forbids it";
  EXPECT_NE(Embedded_chat_js().find("function startChat"), std::string_view::npos);
  EXPECT_NE(Embedded_markdown_js().find("function showMarkdown"), std::string_view::npos);
  for (const std::string_view script :
       {Embedded_page_js(), Embedded_chat_js(), Embedded_markdown_js()}) {
    EXPECT_EQ(script.find("innerHTML"), std::string_view::npos) << "text stays text";
  }
}

TEST(Page, TheFleetIsForOperators) {
  Metrics metrics;
  NullLogger log;
  KeyRing operators(*KeyTable::OfPlainKeys({kToken}, "admin"), metrics, log, "quire_router_admin");
  EdgeHarness edge({}, TestKeys());
  const auto fleet = [&edge](const std::string& headers) {
    return edge.Ask(EdgeHarness::Get("/fleet", headers)).status;
  };
  EXPECT_EQ(fleet(Bearer(kToken)), 403) << "there is no admin token";
  edge.OnLoop([&] { edge.services.operators = &operators; });
  EXPECT_EQ(fleet(""), 401);
  EXPECT_EQ(fleet(Bearer(kAcmeKey)), 401) << "a client is no operator";
  EXPECT_EQ(fleet(Bearer(kToken) + Bearer(kToken)), 401);
  EXPECT_EQ(fleet(Bearer(kToken)), 200);
  EXPECT_EQ(edge.Ask(EdgeHarness::Get("/v1/models", Bearer(kToken))).status, 401)
      << "an operator is no client";
  edge.OnLoop([&] { edge.services.fleet_is_open = true; });
  EXPECT_EQ(fleet(""), 200) << "on loopback, without keys";
}

RunningRequest Stream(uint64_t number, AttemptEnd end, bool carried) {
  RunningRequest running;
  running.state = "generating";
  running.record.request = RequestNumber(number);
  running.record.request_id = "r\xff";
  running.record.tenant = "a-tenant";
  running.record.accepted_tokens = 7;
  AttemptReport attempt;
  attempt.worker_id = "worker-a";
  attempt.end = end;
  attempt.carry_on = carried;
  running.record.attempts.push_back(attempt);
  return running;
}

TEST(FleetJson, TellsWhereStreamsRunAndWhichHaveMoved) {
  FleetPicture picture;
  picture.live_requests = 2;
  picture.workers.push_back({});
  picture.workers[0].target = "10.0.0.1:9000";
  picture.workers[0].phase = "ready";
  picture.workers[0].stuck = true;
  picture.running = {Stream(1, AttemptEnd::kRunning, true), Stream(2, AttemptEnd::kLost, false)};
  const std::string text = FleetJson(picture);
  const auto value = json::Parse(text);
  ASSERT_TRUE(value.ok()) << text;
  const json::Object& object = value->get_object();
  const json::Object& worker = object.at("workers").get_array()[0].get_object();
  EXPECT_EQ(worker.at("id").get_string(), "10.0.0.1:9000") << "it has not greeted yet";
  EXPECT_EQ(worker.at("phase").get_string(), "stuck");
  const json::Array& streams = object.at("streams").get_array();
  EXPECT_EQ(streams[0].get_object().at("worker").get_string(), "worker-a");
  EXPECT_EQ(streams[0].get_object().at("moved").to_number<int>(), 1);
  EXPECT_EQ(streams[1].get_object().find("worker"), streams[1].get_object().end())
      << "it waits for the next one";
  EXPECT_EQ(text.find("a-tenant"), std::string::npos);
}

TEST(FleetJson, ManyStreamsAreCutOff) {
  FleetPicture picture;
  for (uint64_t i = 0; i < kMaxFleetStreams + 1; ++i) {
    picture.running.push_back(Stream(i, AttemptEnd::kRunning, false));
  }
  const auto value = json::Parse(FleetJson(picture));
  EXPECT_EQ(value->get_object().at("streams").get_array().size(), kMaxFleetStreams);
}

}  // namespace
}  // namespace quire
