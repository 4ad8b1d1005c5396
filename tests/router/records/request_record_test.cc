// A record's line: what is in it, what bounds it, and that it gets to the file.
#include "router/records/request_record.h"

#include <gtest/gtest.h>

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <string>

#include "common/json/json.h"
#include "common/log/line_file.h"
#include "common/runtime/virtual_runtime.h"
#include "router/records/request_log.h"

namespace quire {
namespace {

AttemptReport Report(uint32_t number, AttemptEnd end = AttemptEnd::kLost) {
  AttemptReport report;
  report.attempt = Attempt(number);
  report.worker_id = "worker-" + std::to_string(number);
  report.epoch = Epoch(0xfedcba9876543210u);
  report.end = end;
  report.admitted = true;
  report.accepted_tokens = number;
  report.sent_at = 100;
  report.over_at = 350;
  return report;
}

RequestRecord Record() {
  RequestRecord record;
  record.router = RouterInstance(0xffffffffffffffffu);
  record.request = RequestNumber(7);
  record.request_id = "req-1";
  record.tenant = "team";
  record.model = "demo";
  record.model_id = "abc";
  record.finish_reasons = {"stop", ""};
  record.prompt_tokens = 10;
  record.cached_tokens = 4;
  record.accepted_tokens = 9;
  record.delivered_tokens = 8;
  record.discarded_tokens = 1;
  RecordAttempt(record, Report(1));
  RecordAttempt(record, Report(2, AttemptEnd::kFinished));
  record.total_us = 12345;
  return record;
}

TEST(RequestRecord, IsOneLineOfJson) {
  EXPECT_EQ(
      RequestRecordJson(Record(), 1700000000),
      R"({"time":1700000000,"router":"ffffffffffffffff","request":7,"request_id":"req-1",)"
      R"("tenant":"team","model":"demo","model_id":"abc","priority":0,"streaming":false,)"
      R"("reason":"finished","finish_reasons":["stop",""],"prompt_tokens":10,"cached_tokens":4,)"
      R"("resumed_tokens":0,"accepted_tokens":9,"delivered_tokens":8,"discarded_tokens":1,)"
      R"("attempts_total":2,"attempts":[{"attempt":1,"worker":"worker-1",)"
      R"("epoch":"fedcba9876543210","end":"lost","admitted":true,"cached_tokens":0,)"
      R"("accepted_tokens":1,"us":250},{"attempt":2,"worker":"worker-2",)"
      R"("epoch":"fedcba9876543210","end":"finished","admitted":true,"cached_tokens":0,)"
      R"("accepted_tokens":2,"us":250}],"queued_us":-1,"first_token_us":-1,"total_us":12345})");
}

TEST(RequestRecord, ErrorsAndInexactCarryOnsAreMarked) {
  RequestRecord record = Record();
  record.end = RequestEnd::kFailed;
  record.error = ApiCode::kDeadlineExceeded;
  AttemptReport inexact = Report(3);
  inexact.inexact = true;
  RecordAttempt(record, inexact);
  const std::string line = RequestRecordJson(record, 0);
  EXPECT_NE(line.find(R"("reason":"failed","error":"deadline_exceeded")"), std::string::npos);
  EXPECT_NE(line.find(R"("inexact":true,"attempts_total":3)"), std::string::npos);
  EXPECT_NE(line.find(R"("accepted_tokens":3,"inexact":true)"), std::string::npos);
}

TEST(RequestRecord, AttemptsAreBoundedAndCounted) {
  RequestRecord record;
  for (uint32_t i = 1; i <= kMaxRecordedAttempts; ++i) RecordAttempt(record, Report(i));
  EXPECT_EQ(record.attempts.size(), kMaxRecordedAttempts);
  RecordAttempt(record, Report(kMaxRecordedAttempts + 1));
  EXPECT_EQ(record.attempts.size(), kMaxRecordedAttempts);
  EXPECT_EQ(record.attempts_total, kMaxRecordedAttempts + 1);
  EXPECT_EQ(record.attempts.front().attempt, Attempt(1));
  EXPECT_EQ(record.attempts[kMaxRecordedAttempts / 2].attempt,
            Attempt(kMaxRecordedAttempts / 2 + 2));
  EXPECT_EQ(record.attempts.back().attempt, Attempt(kMaxRecordedAttempts + 1));
}

TEST(RequestRecord, AnyNamesMakeAValidLineThatFits) {
  RequestRecord record = Record();
  const std::string hostile(10'000, '\x01');
  record.request_id = record.tenant = record.model = record.model_id = hostile;
  record.attempts.clear();
  for (uint32_t i = 1; i <= kMaxRecordedAttempts; ++i) {
    AttemptReport report = Report(i);
    report.worker_id = hostile;
    RecordAttempt(record, report);
  }
  const std::string line = RequestRecordJson(record, 0);
  EXPECT_LE(line.size(), kMaxFileLineBytes);
  EXPECT_EQ(line.find('\n'), std::string::npos);
  EXPECT_TRUE(json::Parse(line).ok());
}

TEST(RequestRecord, NamesAreCutAndStayText) {
  RequestRecord record = Record();
  record.model = "m";
  for (int i = 0; i < 200; ++i) record.model += "\xc3\xa9";  // the cut falls within one
  record.tenant = "\xff";
  const auto line = json::Parse(RequestRecordJson(record, 0));
  ASSERT_TRUE(line.ok()) << line.status();
}

TEST(RequestLog, WritesEachRecordAndCounts) {
  const std::string path = ::testing::TempDir() + "quire_request_log_test.jsonl";
  std::filesystem::remove(path);
  VirtualWorld world(1);
  Metrics metrics;
  {
    auto log = RequestLog::Open(path, world.clock(), metrics);
    ASSERT_TRUE(log.ok()) << log.status();
    for (int i = 0; i < 3; ++i) (*log)->Write(Record());
  }
  std::ifstream file(path);
  std::string line;
  int lines = 0;
  while (std::getline(file, line)) {
    EXPECT_TRUE(json::Parse(line).ok());
    ++lines;
  }
  EXPECT_EQ(lines, 3);
  std::filesystem::remove(path);
  EXPECT_NE(metrics.Render().find("quire_router_records_total 3"), std::string::npos);
  EXPECT_NE(metrics.Render().find("quire_router_records_lost_total 0"), std::string::npos);
}

TEST(RequestLog, RefusesWhatIsNoFile) {
  VirtualWorld world(1);
  Metrics metrics;
  const auto log = RequestLog::Open("/dev/null", world.clock(), metrics);
  EXPECT_EQ(log.status().code(), absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace quire
