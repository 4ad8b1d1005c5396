// The memory plan: what is dealt to whom, and which setting it names when something does not fit.
#include "worker/load/memory_plan.h"

#include <gtest/gtest.h>

#include "common/status.h"

namespace quire::load {
namespace {

// One full group and, with a window, two sliding groups; pages of 1,000 bytes for 16 tokens.
kernels::KvLayout Layout(int window) {
  kernels::KvLayout kv;
  kv.block_size = 16;
  kv.page_bytes = 1'000;
  kv.kinds.push_back({0, 1});
  if (window > 0) kv.kinds.push_back({window, 2});
  return kv;
}

MemoryRequest Request() {
  MemoryRequest request;
  request.usable_bytes = 1'000'000;
  request.weight_bytes = 300'000;
  request.workspace_bytes = 100'000;
  request.kv = Layout(0);
  request.max_num_seqs = 4;
  request.max_model_len = 160;
  request.max_num_batched_tokens = 32;
  return request;
}

TEST(MemoryPlan, AdaptersAreCountedBeforeThePages) {
  MemoryRequest request = Request();
  const auto without = PlanMemory(request);
  request.adapter_bytes = 50'000;
  const auto with = PlanMemory(request);
  ASSERT_TRUE(without.ok() && with.ok());
  EXPECT_EQ(with->adapter_bytes, 50'000);
  EXPECT_EQ(with->weight_bytes + with->workspace_bytes + with->adapter_bytes + with->kv_bytes +
                with->constraint_bytes + with->free_bytes,
            with->usable_bytes);
  EXPECT_NE(MemoryPlanText(*with, request).find("adapters"), std::string::npos);
  EXPECT_NE(MemoryPlanLine(*with).find(", adapters "), std::string::npos);
  EXPECT_EQ(MemoryPlanLine(*without).find("adapters"), std::string::npos);
  request.adapter_bytes = 600'000;  // all that weights and workspace leave
  const auto none = PlanMemory(request);
  ASSERT_FALSE(none.ok());
  EXPECT_NE(StatusMessage(none.status()).find("the adapters of --max-loras"), std::string::npos)
      << none.status();
}

TEST(MemoryPlan, ADraftModelHasPagesForTheSameTokens) {
  MemoryRequest request = Request();
  const auto without = PlanMemory(request);
  request.draft_bytes = 30'000;
  request.draft_bytes_per_page = 100;
  const auto with = PlanMemory(request);
  ASSERT_TRUE(without.ok() && with.ok());
  EXPECT_EQ(with->draft_bytes, 30'000 + 100 * with->page_count);
  EXPECT_EQ(with->PlannedBytes() + with->constraint_bytes + with->free_bytes, with->usable_bytes);
  EXPECT_NE(MemoryPlanText(*with, request).find("drafts"), std::string::npos);
  EXPECT_NE(MemoryPlanLine(*with).find(", draft model "), std::string::npos);
  EXPECT_EQ(MemoryPlanLine(*without).find("draft"), std::string::npos);
  // All that is left for pages is shared: one page more does not fit.
  const int64_t left = with->usable_bytes - with->weight_bytes - with->workspace_bytes - 30'000;
  const int64_t pages = left / (request.kv.page_bytes + 100);
  request.kv_cache_memory_bytes = pages * request.kv.page_bytes;
  const auto most = PlanMemory(request);
  ASSERT_TRUE(most.ok()) << most.status();
  EXPECT_EQ(most->page_count, pages);
  request.kv_cache_memory_bytes = (pages + 1) * request.kv.page_bytes;
  const auto more = PlanMemory(request);
  ASSERT_FALSE(more.ok());
  EXPECT_NE(StatusMessage(more.status()).find(std::to_string(pages * request.kv.page_bytes)),
            std::string::npos)
      << more.status();
  request.draft_bytes = 600'000;
  const auto none = PlanMemory(request);
  ASSERT_FALSE(none.ok());
  EXPECT_NE(StatusMessage(none.status()).find("the draft model"), std::string::npos);
}

TEST(PagesPerSequence, CountsFullAndSlidingGroups) {
  EXPECT_EQ(PagesPerSequence(Layout(0), 160, 32), 10);
  EXPECT_EQ(PagesPerSequence(Layout(0), 161, 32), 11);
  EXPECT_EQ(PagesPerSequence(Layout(0), 0, 32), 0);
  // A window of 33 and a chunk of 32 reach over 64 tokens: four blocks, or five when they begin
  // inside one.
  EXPECT_EQ(PagesPerSequence(Layout(33), 160, 32), 10 + 2 * 5);
  EXPECT_EQ(PagesPerSequence(Layout(33), 32, 32), 2 + 2 * 2);
}

TEST(PlanMemory, GivesKvWhatAllSequencesNeed) {
  const absl::StatusOr<MemoryPlan> plan = PlanMemory(Request());
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_EQ(plan->page_count, 40);
  EXPECT_EQ(plan->kv_bytes, 40'000);
  EXPECT_EQ(plan->free_bytes, 1'000'000 - 300'000 - 100'000 - 40'000);
}

TEST(PlanMemory, GivesKvAtMostHalfOfWhatIsLeft) {
  MemoryRequest request = Request();
  request.max_num_seqs = 1'000'000'000'000;
  const absl::StatusOr<MemoryPlan> plan = PlanMemory(request);
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_EQ(plan->kv_bytes, 300'000);
  EXPECT_EQ(plan->free_bytes, 300'000);
}

TEST(PlanMemory, GrammarsGetWhatTheyNeedOfTheRestOrNothing) {
  MemoryRequest request = Request();
  const int64_t rest = PlanMemory(request)->free_bytes;
  request.constraint_bytes = rest;
  absl::StatusOr<MemoryPlan> plan = PlanMemory(request);
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_EQ(plan->constraint_bytes, rest);
  EXPECT_EQ(plan->free_bytes, 0);
  EXPECT_NE(MemoryPlanText(*plan, request).find("grammars"), std::string::npos);
  request.constraint_bytes = rest + 1;
  plan = PlanMemory(request);
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_EQ(plan->constraint_bytes, 0);
  EXPECT_EQ(plan->free_bytes, rest);
}

TEST(PlanMemory, GivesKvAllThatIsLeftOnAGpu) {
  MemoryRequest request = Request();
  request.on_gpu = true;
  request.max_num_seqs = 1'000'000'000'000;
  absl::StatusOr<MemoryPlan> plan = PlanMemory(request);
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_EQ(plan->kv_bytes, 600'000);
  EXPECT_EQ(plan->free_bytes, 0);
  request.max_num_seqs = 4;
  plan = PlanMemory(request);
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_EQ(plan->kv_bytes, 40'000) << "no more than its sequences need";
}

TEST(PlanMemory, DividesByWorkers) {
  MemoryRequest request = Request();
  request.max_num_seqs = 1'000;
  request.workers = 2;
  const absl::StatusOr<MemoryPlan> plan = PlanMemory(request);
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_EQ(plan->usable_bytes, 500'000);
  EXPECT_EQ(plan->kv_bytes, 50'000);
}

TEST(PlanMemory, TakesTheOperatorsWord) {
  MemoryRequest request = Request();
  request.kv_cache_memory_bytes = 555'555;
  const absl::StatusOr<MemoryPlan> plan = PlanMemory(request);
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_EQ(plan->page_count, 555);
  request.kv_cache_memory_bytes = 600'001;
  EXPECT_NE(StatusMessage(PlanMemory(request).status()).find("600000 fits"), std::string::npos)
      << PlanMemory(request).status();
}

TEST(PlanMemory, NamesTheLargestLengthThatFits) {
  MemoryRequest request = Request();
  request.max_model_len = 1'000'000;
  const absl::StatusOr<MemoryPlan> plan = PlanMemory(request);
  EXPECT_EQ(plan.status().code(), absl::StatusCode::kResourceExhausted);
  // 300,000 bytes are 300 pages of 16 tokens.
  EXPECT_NE(StatusMessage(plan.status()).find("--max-model-len 4800 fits"), std::string::npos)
      << plan.status();
  request.max_model_len = 4'800;
  EXPECT_TRUE(PlanMemory(request).ok());
  request.max_model_len = 4'801;
  EXPECT_FALSE(PlanMemory(request).ok());
}

TEST(PlanMemory, SaysWhenNothingFits) {
  MemoryRequest request = Request();
  request.kv_cache_memory_bytes = 999;
  EXPECT_NE(StatusMessage(PlanMemory(request).status()).find("not one block of 16 tokens fits"),
            std::string::npos)
      << PlanMemory(request).status();
}

TEST(PlanMemory, NamesAnAmountOfCacheThatFits) {
  MemoryRequest request = Request();
  for (const int64_t given : {999, 9'999}) {  // no block, and some
    request.kv_cache_memory_bytes = given;
    const std::string message = StatusMessage(PlanMemory(request).status());
    EXPECT_NE(message.find("--kv-cache-memory-bytes " + std::to_string(given)), std::string::npos);
    EXPECT_NE(message.find("--kv-cache-memory-bytes 10000"), std::string::npos) << message;
  }
  request.kv_cache_memory_bytes = 10'000;
  EXPECT_TRUE(PlanMemory(request).ok());
}

TEST(PlanMemory, SaysWhenWeightsDoNotFit) {
  MemoryRequest request = Request();
  request.weight_bytes = 2'000'000;
  EXPECT_NE(StatusMessage(PlanMemory(request).status()).find("no setting fits"), std::string::npos)
      << PlanMemory(request).status();
  request = Request();
  request.workers = 3;
  EXPECT_NE(StatusMessage(PlanMemory(request).status()).find("--workers 2 fits"), std::string::npos)
      << PlanMemory(request).status();
}

TEST(MemoryPlanText, NamesEveryPart) {
  MemoryRequest request = Request();
  request.limited_by_cgroup = true;
  const std::string text = MemoryPlanText(*PlanMemory(request), request);
  for (const char* part :
       {"weights", "workspace", "kv cache", "free", "1.00 MB usable", "the cgroup's limit",
        "40 pages of 16 tokens (float32), 4 sequences of 160"}) {
    EXPECT_NE(text.find(part), std::string::npos) << part << " in\n" << text;
  }
}

}  // namespace
}  // namespace quire::load
