// Shares of tenants: who has been served least goes first, whatever the others send, and nobody
// with work falls behind by more than a bound.
#include <deque>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "worker/scheduler/scheduler.h"

namespace quire {
namespace {

TEST(FairShareTest, IdlenessEarnsNoCredit) {
  FairShare shares;
  Tenant& a = shares.Join("a");
  a.rows_wanted = 1;
  shares.Update(a);
  a.served += 1000;
  shares.StartPass();
  Tenant& b = shares.Join("b");
  b.rows_wanted = 1;
  shares.Update(b);
  EXPECT_EQ(b.served, 1000);  // not below those that have worked all the time
  shares.CheckInvariants();
}

TEST(FairShareTest, ADebtIsRememberedForABoundedNumberOfTenants) {
  FairShare shares;
  Tenant& base = shares.Join("base");
  base.rows_wanted = 1;
  shares.Update(base);
  shares.StartPass();
  for (size_t i = 0; i < kMaxIdleTenants + 10; ++i) {
    Tenant& tenant = shares.Join(std::to_string(i));
    tenant.rows_wanted = 1;
    shares.Update(tenant);
    tenant.served += static_cast<int64_t>(i) + 1;
    tenant.rows_wanted = 0;
    shares.Update(tenant);
    shares.Leave(tenant);
    shares.CheckInvariants();
  }
  EXPECT_EQ(shares.idle_count(), kMaxIdleTenants);
  EXPECT_EQ(shares.Join("5").served, 0);        // the smallest debts were forgotten
  EXPECT_EQ(shares.Join("1000").served, 1001);  // the others come back with theirs
}

TEST(FairShareTest, HeldCacheCounts) {
  FairShare shares;
  Tenant& a = shares.Join("a");
  a.held_tokens = 2048;
  for (int i = 0; i < 10; ++i) shares.StartPass();
  EXPECT_EQ(a.served, 20480 * kHeldTokenService);
  a.held_tokens = 0;
  shares.Leave(a);
}

// A world of tenants that always have more to do, over a scheduler that samples nothing real.
class Tenants {
 public:
  explicit Tenants(const SchedulerOptions& options, size_t count)
      : scheduler_(options), names_(count), served_(count) {
    for (size_t i = 0; i < count; ++i) names_[i] = "tenant-" + std::to_string(i);
  }

  void Send(size_t tenant, int32_t prompt, int64_t outputs) {
    auto& sequence = *sequences_.emplace_back(std::make_unique<Sequence>());
    sequence.id = sequence.arrival = ++next_;
    sequence.tenant = names_[tenant];
    sequence.prompt_length = prompt;
    sequence.output_limit = outputs;
    sequence.sampling = &sampling_;
    sequence.tokens.assign(static_cast<size_t>(prompt), 1);
    owner_[&sequence] = tenant;
    ++open_[tenant];
    scheduler_.Enqueue(sequence);
  }

  void Step() {
    if (!scheduler_.Plan(plan_, rows_)) return;
    for (const PlannedRow& row : rows_) {
      EXPECT_LT(row.sequence->preemptions, kMaxPreemptions + 1);
    }
    for (const PlannedRow& row : rows_) {
      if (!scheduler_.CommitRow(row, row.sample ? 2 : -1)) continue;
      if (row.sequence->OutputCount() < row.sequence->output_limit) continue;
      const size_t tenant = owner_[row.sequence];
      --open_[tenant];
      scheduler_.Remove(*row.sequence);
    }
    scheduler_.CommitStep(plan_.number, rows_);
    scheduler_.CheckInvariants();
    std::erase_if(sequences_, [](const auto& s) { return s->place == SequencePlace::kNone; });
  }

  // Service of each tenant with sequences here.
  int64_t Spread() const {
    int64_t least = INT64_MAX, most = INT64_MIN;
    for (const Tenant* tenant : scheduler_.shares().present()) {
      least = std::min(least, tenant->served);
      most = std::max(most, tenant->served);
    }
    return most - least;
  }

  int open(size_t tenant) { return open_[tenant]; }
  const Scheduler& scheduler() const { return scheduler_; }

 private:
  Scheduler scheduler_;
  std::vector<std::string> names_;
  std::vector<int64_t> served_;
  SamplingParams sampling_;
  uint64_t next_ = 0;
  std::vector<std::unique_ptr<Sequence>> sequences_;
  std::map<const Sequence*, size_t> owner_;
  std::map<size_t, int> open_;
  StepPlan plan_;
  std::vector<PlannedRow> rows_;
};

// Tenants differ in everything (long prompts, long answers, many requests), and each always has
// work waiting: their service stays together, within what moving a victim is allowed to cost.
TEST(FairnessTest, NoTenantWithWorkFallsBelowItsShare) {
  for (uint64_t seed = 1; seed <= 30; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937_64 rng(seed);
    SchedulerOptions options;
    options.max_num_seqs = static_cast<int32_t>(2 + rng() % 12);
    options.max_num_batched_tokens = static_cast<int32_t>(32 + rng() % 400);
    options.cache = {
        .block_size = 16, .page_count = static_cast<int64_t>(80 + rng() % 400), .kinds = {{0, 1}}};
    const size_t count = 2 + rng() % 4;
    Tenants world(options, count);
    std::vector<int32_t> prompts(count), answers(count);
    for (size_t tenant = 0; tenant < count; ++tenant) {
      prompts[tenant] = static_cast<int32_t>(1 + rng() % 600);
      answers[tenant] = static_cast<int32_t>(1 + rng() % 600);
    }
    // More waiting than rows, always.
    const int depth = options.max_num_seqs + 2;
    int64_t worst = 0;
    for (int step = 0; step < 3000; ++step) {
      for (size_t tenant = 0; tenant < count; ++tenant) {
        while (world.open(tenant) < depth) {
          world.Send(tenant, 1 + static_cast<int32_t>(rng() % prompts[tenant]),
                     1 + static_cast<int64_t>(rng() % answers[tenant]));
        }
      }
      world.Step();
      if (step > 100) worst = std::max(worst, world.Spread());
    }
    // The slack, what the longest victim may cost on top, one step of all the rest.
    const int64_t longest = 1200;
    const int64_t bound = kFairnessSlack + (kRecomputeFactor + 3) * longest * kPrefillTokenService +
                          2 * options.max_num_batched_tokens * kPrefillTokenService;
    EXPECT_LE(worst, bound);
  }
}

// One tenant floods, another asks now and then: the second is served as if it were alone but for
// the steps that are shared.
TEST(FairnessTest, AFloodDoesNotDelayAnother) {
  SchedulerOptions options;
  options.max_num_seqs = 8;
  options.max_num_batched_tokens = 128;
  options.cache = {.block_size = 16, .page_count = 1000, .kinds = {{0, 1}}};
  Tenants world(options, 2);
  for (int i = 0; i < 200; ++i) world.Send(0, 500, 20);
  for (int step = 0; step < 50; ++step) world.Step();
  world.Send(1, 100, 5);
  int steps = 0;
  for (; world.open(1) > 0 && steps < 1000; ++steps) world.Step();
  EXPECT_LE(steps, 20) << "a prompt of one step and five tokens";
}

// All rows are taken by long answers of one tenant: the other gets its row without waiting for
// their end.
TEST(FairnessTest, RowsArePreemptedForATenantThatHasNone) {
  SchedulerOptions options;
  options.max_num_seqs = 4;
  options.max_num_batched_tokens = 64;
  options.cache = {.block_size = 16, .page_count = 4000, .kinds = {{0, 1}}};
  Tenants world(options, 2);
  for (int i = 0; i < 4; ++i) world.Send(0, 10, 10'000);
  for (int step = 0; step < 20; ++step) world.Step();
  world.Send(1, 10, 3);
  int steps = 0;
  for (; world.open(1) > 0 && steps < 8000; ++steps) world.Step();
  EXPECT_LT(steps, 2500);
  EXPECT_EQ(world.scheduler().totals().fairness_preemptions, 1u);
}

}  // namespace
}  // namespace quire
