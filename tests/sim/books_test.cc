// The books of router and workers, held against each other and against what clients got: through
// faults, and in a calm world to the last token.
#include <gtest/gtest.h>

#include <set>
#include <string>

#include "tests/sim/sim_cluster.h"
#include "tests/support/seed_suite.h"

namespace quire::sim {
namespace {

uint64_t Counted(const RunResult& run, const std::string& name) {
  const size_t at = run.metrics.find("\n" + name + " ");
  EXPECT_NE(at, std::string::npos) << name;
  return at == std::string::npos ? 0 : std::stoull(run.metrics.substr(at + name.size() + 2));
}

const AttemptRecord* WorkersHalf(const RunResult& run, const RequestRecord& record,
                                 const AttemptReport& attempt) {
  const auto it = run.attempts.find(
      {attempt.worker_id, attempt.epoch.value(), record.request.value(), attempt.attempt.value()});
  return it == run.attempts.end() ? nullptr : &it->second;
}

// Requests are numbered in the order in which clients start, which is by time.
void JudgeRecord(const RequestRecord& record, const RunResult& run) {
  SCOPED_TRACE("request " + std::to_string(record.request.value()));
  EXPECT_EQ(record.delivered_tokens + record.discarded_tokens, record.accepted_tokens);
  EXPECT_LE(record.cached_tokens, record.prompt_tokens);
  EXPECT_EQ(record.attempts_total, record.attempts.size());
  uint64_t accepted = 0;
  uint32_t last = 0;
  for (const AttemptReport& attempt : record.attempts) {
    EXPECT_GT(attempt.attempt.value(), last);
    last = attempt.attempt.value();
    accepted += attempt.accepted_tokens;
    EXPECT_TRUE(attempt.admitted || attempt.accepted_tokens == 0);
    const AttemptRecord* theirs = WorkersHalf(run, record, attempt);
    if (theirs == nullptr) continue;  // killed, or it never got there
    EXPECT_LE(attempt.accepted_tokens, theirs->usage.generated_tokens);
    EXPECT_EQ(theirs->tenant, record.tenant);
    if (!attempt.admitted) continue;
    // A bill knows of prompts only; an attempt that carries on may find its outputs cached, too.
    EXPECT_EQ(std::min(attempt.cached_tokens, record.prompt_tokens), theirs->usage.cached_tokens);
  }
  EXPECT_EQ(accepted, record.accepted_tokens);
}

void JudgeBooks(const RunResult& run, const Scenario& scenario) {
  ASSERT_EQ(run.records.size(), scenario.clients.size()) << "one record each";
  std::set<uint64_t> numbers;
  std::map<std::string, size_t> ends;
  uint64_t prompt = 0, cached = 0, accepted = 0, delivered = 0, discarded = 0, attempts = 0;
  for (const RequestRecord& record : run.records) {
    EXPECT_TRUE(numbers.insert(record.request.value()).second);
    JudgeRecord(record, run);
    ++ends[std::string(RequestEndName(record.end))];
    prompt += record.prompt_tokens;
    cached += record.cached_tokens;
    accepted += record.accepted_tokens;
    delivered += record.delivered_tokens;
    discarded += record.discarded_tokens;
    attempts += record.attempts_total;
  }
  size_t finished = 0, cancelled = 0, failed = 0, received = 0;
  for (const ClientResult& client : run.clients) {
    finished += client.usage ? 1 : 0;
    cancelled += client.cancelled ? 1 : 0;
    failed += client.error ? 1 : 0;
    for (const auto& [index, choice] : client.choices) received += choice.ids.size();
  }
  EXPECT_EQ(ends["finished"], finished);
  EXPECT_EQ(ends["cancelled"], cancelled);
  EXPECT_EQ(ends["failed"] + ends["rejected"], failed);
  EXPECT_EQ(delivered, received);
  EXPECT_EQ(delivered, Counted(run, "quire_router_generation_tokens_total"));
  EXPECT_EQ(discarded, Counted(run, "quire_router_discarded_tokens_total"));
  EXPECT_EQ(accepted, Counted(run, "quire_router_accepted_tokens_total"));
  EXPECT_EQ(prompt, Counted(run, "quire_router_prompt_tokens_total"));
  EXPECT_EQ(cached, Counted(run, "quire_router_cached_tokens_total"));
  EXPECT_EQ(attempts, Counted(run, "quire_router_attempts_total"));
}

TEST(Books, AgreeToTheLastAttemptInACalmWorld) {
  for (uint64_t seed = 1; seed <= 10; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Scenario scenario = DrawScenario(seed);
    scenario.faults.clear();
    const RunResult run = RunScenario(scenario);
    JudgeBooks(run, scenario);
    size_t booked = 0;
    for (const RequestRecord& record : run.records) {
      for (const AttemptReport& attempt : record.attempts) {
        EXPECT_NE(attempt.end, AttemptEnd::kLost);
        EXPECT_FALSE(attempt.inexact);
        const AttemptRecord* theirs = WorkersHalf(run, record, attempt);
        if (!attempt.admitted) continue;  // given up before its worker had looked at it
        ++booked;
        ASSERT_NE(theirs, nullptr) << "nobody was killed: every attempt has its other half";
        EXPECT_EQ(theirs->usage.prompt_tokens, record.prompt_tokens);
      }
    }
    EXPECT_GE(run.attempts.size(), booked);
    if (::testing::Test::HasFailure()) break;
  }
}

TEST(Books, AgreeThroughFaults) {
  size_t lost = 0, several = 0;
  constexpr uint64_t kSeeds = 40;
  const uint64_t seeds = SeedsOf(kSeeds);
  for (uint64_t seed = 101; seed < 101 + seeds; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    const Scenario scenario = DrawScenario(seed);
    const RunResult run = RunScenario(scenario);
    JudgeBooks(run, scenario);
    for (const RequestRecord& record : run.records) {
      several += record.attempts.size() > 1 ? 1 : 0;
      for (const AttemptReport& each : record.attempts) lost += each.end == AttemptEnd::kLost;
    }
    if (::testing::Test::HasFailure()) break;
  }
  if (seeds < kSeeds) return;
  EXPECT_GT(lost, 5u) << "faults befell attempts";
  EXPECT_GT(several, 5u);
}

}  // namespace
}  // namespace quire::sim
