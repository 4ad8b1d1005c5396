// Attempt records as lines: what does not fit is counted, and nobody waits for it.
#include "worker/records/attempt_log.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <set>
#include <string>

#include "common/json/json.h"
#include "common/log/line_file.h"

namespace quire {
namespace {

class FixedClock final : public Clock {
 public:
  Micros Now() const override { return 0; }
  int64_t UnixSeconds() const override { return 1'700'000'000; }
};

uint64_t Counter(const Metrics& metrics, const std::string& name) {
  const std::string text = metrics.Render();
  const size_t at = text.find("\n" + name + " ");
  EXPECT_NE(at, std::string::npos) << text;
  return at == std::string::npos ? 0 : std::stoull(text.substr(at + name.size() + 2));
}

TEST(AttemptLog, AnAdapterIsNamedByItsDigest) {
  AttemptRecord record;
  EXPECT_EQ(AttemptRecordJson(record, Epoch(1), 1).find("adapter"), std::string::npos);
  record.adapter = std::string(64, 'a');
  EXPECT_NE(AttemptRecordJson(record, Epoch(1), 1).find("\"adapter\":\"" + record.adapter + '"'),
            std::string::npos);
}

// Nothing takes lines from the queue before Start, as little as a disk that stands still does.
TEST(AttemptLog, TheQueueTakesItsLimitAndWhatComesBeyondIsCounted) {
  constexpr size_t kBeyond = 100;
  const std::string path = testing::TempDir() + "quire_attempt_log.jsonl";
  std::filesystem::remove(path);
  const FixedClock clock;
  Metrics metrics;
  {
    auto log = AttemptLog::Open(path, clock, metrics);
    ASSERT_TRUE(log.ok()) << log.status();
    AttemptRecord record;
    record.router = RouterInstance(7);
    record.reason = EndReason::kLength;
    for (size_t i = 0; i < kMaxQueuedFileLines + kBeyond; ++i) {
      record.key = {RequestNumber(i + 1), Attempt(1)};
      (*log)->Write(record);
    }
    EXPECT_EQ(Counter(metrics, "quire_worker_records_lost_total"), kBeyond);
    (*log)->Start(Epoch(9));
  }
  EXPECT_EQ(Counter(metrics, "quire_worker_records_total"), kMaxQueuedFileLines + kBeyond);
  EXPECT_EQ(Counter(metrics, "quire_worker_records_lost_total"), kBeyond);
  std::ifstream file(path);
  std::set<int64_t> requests;
  for (std::string line; std::getline(file, line);) {
    const auto object = json::Parse(line);
    ASSERT_TRUE(object.ok()) << line;
    requests.insert(*json::AsInt(*json::Find(object->as_object(), "request"), "request"));
  }
  EXPECT_EQ(requests.size(), kMaxQueuedFileLines);
  EXPECT_EQ(*requests.rbegin(), static_cast<int64_t>(kMaxQueuedFileLines)) << "the first ones";
  std::filesystem::remove(path);
}

}  // namespace
}  // namespace quire
