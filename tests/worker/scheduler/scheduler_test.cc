// What a step holds: decodes first, prefill within the budget and never less than a block, victims
// by the least to recompute, nobody passed or starved.
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "worker/scheduler/scheduler.h"
#include "worker/scheduler/step_cost.h"

namespace quire {
namespace {

class SchedulerTest : public testing::Test {
 protected:
  void Make(int32_t seqs, int32_t tokens, int64_t pages) {
    options_.max_num_seqs = seqs;
    options_.max_num_batched_tokens = tokens;
    options_.cache = {.block_size = 4, .page_count = pages, .kinds = {{0, 1}}};
    scheduler_ = std::make_unique<Scheduler>(options_);
  }

  Sequence& Add(int32_t prompt, int64_t output_limit = 100, int32_t priority = 0) {
    auto& sequence = *sequences_.emplace_back(std::make_unique<Sequence>());
    sequence.id = sequence.arrival = sequences_.size();
    sequence.priority = priority;
    sequence.prompt_length = prompt;
    sequence.output_limit = output_limit;
    sequence.sampling = &sampling_;
    sequence.tokens.assign(static_cast<size_t>(prompt), 1);
    scheduler_->Enqueue(sequence);
    return sequence;
  }

  // Plans one step; the q_len of each row by sequence id.
  std::map<uint64_t, int32_t> PlanStep() {
    std::map<uint64_t, int32_t> lengths;
    if (!scheduler_->Plan(plan_, rows_, budget_)) return lengths;
    for (const PlannedRow& row : rows_) lengths[row.sequence->id] = row.q_len;
    in_flight_.push_back({plan_.number, rows_});
    scheduler_->CheckInvariants();
    return lengths;
  }
  void CommitOne() {
    const auto [number, rows] = in_flight_.front();
    in_flight_.erase(in_flight_.begin());
    for (const PlannedRow& row : rows) {
      if (!scheduler_->CommitRow(row, row.sample ? 2 : -1)) continue;
      if (row.sequence->OutputCount() >= row.sequence->output_limit) {
        scheduler_->Remove(*row.sequence);
      }
    }
    scheduler_->CommitStep(number, rows);
    scheduler_->CheckInvariants();
  }
  std::map<uint64_t, int32_t> Step() {
    auto lengths = PlanStep();
    if (!lengths.empty()) CommitOne();
    return lengths;
  }

  using Lengths = std::map<uint64_t, int32_t>;
  SchedulerOptions options_;
  StepBudget budget_;
  SamplingParams sampling_;
  std::vector<std::unique_ptr<Sequence>> sequences_;
  std::unique_ptr<Scheduler> scheduler_;
  StepPlan plan_;
  std::vector<PlannedRow> rows_;
  std::vector<std::pair<uint64_t, std::vector<PlannedRow>>> in_flight_;
};

TEST_F(SchedulerTest, DecodesFirstThenPrefillWithinTheBudget) {
  Make(8, 10, 100);
  Add(3);
  EXPECT_EQ(Step(), (Lengths{{1, 3}}));
  Add(25);
  EXPECT_EQ(Step(), (Lengths{{1, 1}, {2, 9}}));
  EXPECT_EQ(Step(), (Lengths{{1, 1}, {2, 9}}));
  Add(2);
  EXPECT_EQ(Step(), (Lengths{{1, 1}, {2, 7}, {3, 2}}));
  EXPECT_EQ(Step(), (Lengths{{1, 1}, {2, 1}, {3, 1}}));
}

TEST_F(SchedulerTest, PrefillGetsABlockWhateverDecodesTake) {
  Make(8, 3, 100);
  for (int i = 0; i < 3; ++i) Add(1);
  Step();
  EXPECT_EQ(Step(), (Lengths{{1, 1}, {2, 1}, {3, 1}}));
  Add(9);
  EXPECT_EQ(Step(), (Lengths{{1, 1}, {2, 1}, {3, 1}, {4, 4}}));
  EXPECT_LE(3 + 4, MaxStepTokens(8, 3, 4));
}

TEST_F(SchedulerTest, RowsAreLimitedAndOrderIsPriorityThenArrival) {
  options_.policy = SchedulingPolicy::kPriority;
  Make(2, 64, 100);
  Add(2, 1, 5);
  Add(2, 1, 1);
  Add(2, 1, 1);
  Add(2, 1, 0);
  EXPECT_EQ(Step(), (Lengths{{4, 2}, {2, 2}}));
  EXPECT_EQ(Step(), (Lengths{{3, 2}, {1, 2}}));
  EXPECT_TRUE(Step().empty());
  EXPECT_TRUE(scheduler_->Idle());
}

TEST_F(SchedulerTest, TheFirstWaitingIsNotPassed) {
  Make(8, 64, 10);
  Add(20);
  Step();
  Add(30);  // eight blocks, five are free
  Add(1);   // would fit, but does not pass
  EXPECT_EQ(Step(), (Lengths{{1, 1}}));
}

TEST_F(SchedulerTest, TheVictimHasTheLeastToRecompute) {
  Make(8, 64, 8);
  Sequence& a = Add(7);
  Sequence& b = Add(15);
  EXPECT_EQ(Step(), (Lengths{{1, 7}, {2, 15}}));  // two blocks and four
  for (int i = 0; i < 30 && a.place == SequencePlace::kRunning; ++i) Step();
  EXPECT_EQ(a.place, SequencePlace::kWaiting);
  EXPECT_EQ(b.place, SequencePlace::kRunning);
  EXPECT_FALSE(a.HoldsBlocks());
  EXPECT_EQ(a.computed, 0);
  EXPECT_GT(a.high_water, 7);
  const size_t known = a.tokens.size();
  scheduler_->Remove(b);
  EXPECT_EQ(Step(), (Lengths{{1, static_cast<int32_t>(known)}}));
  EXPECT_EQ(a.computed_total - a.recomputed_total, 7);
}

TEST_F(SchedulerTest, PausedRowsKeepBlocksAndGiveWayFirst) {
  Make(8, 64, 10);
  Sequence& paused = Add(20);
  paused.window_end = 1;
  Step();
  EXPECT_TRUE(Step().empty());
  EXPECT_EQ(paused.place, SequencePlace::kPaused);
  EXPECT_EQ(paused.row, -1);
  EXPECT_EQ(scheduler_->kv().pool().held(), 5);
  Add(24);  // needs six of the five that are free
  EXPECT_EQ(Step(), (Lengths{{2, 24}}));
  EXPECT_FALSE(paused.HoldsBlocks());
  EXPECT_EQ(paused.place, SequencePlace::kPaused);
  scheduler_->Grant(paused, 3);
  EXPECT_EQ(paused.place, SequencePlace::kWaiting);
}

TEST_F(SchedulerTest, AGrantedRowGoesOnWithItsBlocks) {
  Make(8, 64, 10);
  Sequence& sequence = Add(6);
  sequence.window_end = 1;
  Step();
  EXPECT_TRUE(Step().empty());
  scheduler_->Grant(sequence, 2);
  EXPECT_EQ(PlanStep(), (Lengths{{1, 1}}));
  ASSERT_EQ(plan_.born.size(), 1u);
  EXPECT_EQ(plan_.rows[0].first_position, 6);
  EXPECT_EQ(plan_.tokens.size(), 7u);  // the runner is told the whole of it
  EXPECT_EQ(plan_.appends.size(), 2u);
  CommitOne();
  EXPECT_EQ(sequence.recomputed_total, 0);
}

TEST_F(SchedulerTest, TwoStepsInFlightNameTheLastSampleNotItsValue) {
  Make(8, 64, 10);
  Add(3, 3);
  EXPECT_EQ(PlanStep(), (Lengths{{1, 3}}));
  EXPECT_EQ(PlanStep(), (Lengths{{1, 1}}));
  EXPECT_TRUE(plan_.tokens.empty());
  EXPECT_EQ(PlanStep(), (Lengths{{1, 1}}));
  EXPECT_TRUE(PlanStep().empty());  // the limit is in flight: no overrun by length
  CommitOne();
  CommitOne();
  CommitOne();
  EXPECT_TRUE(scheduler_->Idle());
  EXPECT_EQ(scheduler_->kv().pool().held(), 0);
}

TEST_F(SchedulerTest, BlocksOfTheEndedGoBackWithTheLastStepThatNamesThem) {
  Make(8, 64, 10);
  Sequence& sequence = Add(8);
  PlanStep();
  PlanStep();
  scheduler_->Remove(sequence);
  scheduler_->CheckInvariants();
  EXPECT_GT(scheduler_->kv().pool().held(), 0);
  CommitOne();
  EXPECT_GT(scheduler_->kv().pool().held(), 0);
  CommitOne();
  EXPECT_EQ(scheduler_->kv().pool().held(), 0);
}

TEST_F(SchedulerTest, TheTimeBudgetCutsChunksAtABlocksEnd) {
  Make(8, 200, 200);
  budget_.max_us = 10'000;
  budget_.times = {.fixed_us = 1'000, .row_us = 500, .token_us = 200, .context_us = 0};
  Add(3);
  EXPECT_EQ(Step(), (Lengths{{1, 3}}));
  Add(100);
  EXPECT_EQ(Step(), (Lengths{{1, 1}, {2, 40}}));  // 42 fit in the 8,500 that the decode leaves
  budget_.times.fixed_us = 50'000;                // no time at all: decodes and a block
  EXPECT_EQ(Step(), (Lengths{{1, 1}, {2, 4}}));
  Add(5);
  EXPECT_EQ(Step(), (Lengths{{1, 1}, {2, 4}}));  // one block in all, not one each
  budget_.max_us = 0;
  EXPECT_EQ(Step(), (Lengths{{1, 1}, {2, 52}, {3, 5}}));
}

TEST_F(SchedulerTest, FcfsDoesNotLookAtPriorities) {
  Make(1, 64, 100);
  Add(2, 1, 9);
  Add(2, 1, -9);
  EXPECT_EQ(Step(), (Lengths{{1, 2}}));
  EXPECT_EQ(Step(), (Lengths{{2, 2}}));
}

TEST_F(SchedulerTest, OfTheLastPriorityTheVictimIsTaken) {
  options_.policy = SchedulingPolicy::kPriority;
  Make(8, 64, 10);
  Sequence& first = Add(15, 100, 0);  // four blocks and growing
  Sequence& last = Add(11, 100, 1);   // three: more to recompute than the next
  Sequence& small = Add(3, 100, 0);
  Step();
  ASSERT_EQ(last.place, SequencePlace::kRunning);
  for (int i = 0; i < 30 && last.place == SequencePlace::kRunning; ++i) Step();
  EXPECT_EQ(last.place, SequencePlace::kWaiting);
  EXPECT_EQ(small.place, SequencePlace::kRunning);
  EXPECT_EQ(first.place, SequencePlace::kRunning);
}

// More important work keeps coming and takes the row of the less important; who has lost it
// kMaxPreemptions times has all its pages kept and runs to its end.
TEST_F(SchedulerTest, WhoLostItsRowTooOftenIsProtected) {
  options_.policy = SchedulingPolicy::kPriority;
  for (const int32_t lost : {0, kMaxPreemptions}) {
    SCOPED_TRACE(lost);
    Make(4, 64, 16);
    Sequence& low = Add(4, 40, 1);
    low.preemptions = lost;
    Sequence* high = nullptr;
    for (int step = 0; step < 4000 && low.place != SequencePlace::kNone; ++step) {
      if (high == nullptr || high->place == SequencePlace::kNone) high = &Add(9, 30, 0);
      Step();
    }
    EXPECT_EQ(low.OutputCount(), 40);
    if (lost == 0) {
      EXPECT_GT(low.preemptions, 0);
    } else {
      EXPECT_EQ(low.preemptions, lost);
    }
  }
}

TEST_F(SchedulerTest, WhatCanNeverFitIsNamedAndTheOthersGoOn) {
  Make(8, 64, 4);
  Sequence& other = Add(3, 3);
  Sequence& large = Add(100);  // 25 blocks of four
  Step();
  ASSERT_EQ(scheduler_->unfit(), &large);
  scheduler_->Remove(large);
  EXPECT_EQ(scheduler_->unfit(), nullptr);
  Step();
  Step();
  EXPECT_EQ(other.OutputCount(), 3);
  EXPECT_TRUE(scheduler_->Idle());
}

TEST_F(SchedulerTest, AWatermarkKeepsABlockForEachRunningRow) {
  Make(8, 64, 6);
  Add(7);  // two blocks
  Add(7);  // two more, and one for the row that runs
  Add(3);  // one, and two for the rows: it waits
  EXPECT_EQ(Step(), (Lengths{{1, 7}, {2, 7}}));
  EXPECT_EQ(scheduler_->totals().preemptions, 0u);
}

TEST(StepCostTest, LearnsAndErrsOnTheLongSide) {
  StepCost cost;
  EXPECT_GE(cost.PredictMicros(2048), 10'000'000);
  cost.Observe(1, 1000);
  EXPECT_EQ(cost.PredictMicros(1), 1000);
  EXPECT_GE(cost.PredictMicros(64), 64'000);
  for (int i = 0; i < 100; ++i) cost.Observe(64, 5000);
  EXPECT_EQ(cost.PredictMicros(64), 5000);
  EXPECT_GE(cost.PredictMicros(128), 10'000);
}

}  // namespace
}  // namespace quire
