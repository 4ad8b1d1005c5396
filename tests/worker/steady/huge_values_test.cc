// A huge value of a parameter takes no more memory than the largest one that means something: what
// a request takes is bounded by the context and the vocabulary, not by what it asks for.
#include <gtest/gtest.h>

#include <cstdint>
#include <functional>
#include <limits>

#include "tests/worker/engine/engine_harness.h"
#include "tests/worker/steady/allocation_counter.h"

namespace quire::test {
namespace {

using Set = std::function<void(Submit&)>;

// Bytes that a request takes from its Submit to its first tokens and its end.
int64_t BytesOf(const Set& set) {
  Harness harness(SmallEngine());
  harness.Send(harness.MakeSubmit(1, {4, 5, 6}, 200));  // what the engine takes at its first work
  harness.RunFor(0);
  Submit submit = harness.MakeSubmit(2, {1, 2, 3}, 253);
  submit.sampling.ignore_eos = true;
  set(submit);
  const int64_t bytes = CountAllocatedBytes([&] {
    harness.Send(std::move(submit));
    for (int round = 0; round < 3; ++round) harness.Once();
    harness.Cancel(2);
    harness.Once();
  });
  EXPECT_TRUE(harness.answer(2).refused.empty());
  EXPECT_GE(harness.answer(2).tokens.size(), 2u);
  EXPECT_EQ(harness.last.load.held_blocks, 0u);
  return bytes;
}

TEST(HugeValues, TakeNoMoreMemoryThanTheLargestThatMeanSomething) {
  constexpr int32_t kHuge = std::numeric_limits<int32_t>::max();
  struct Case {
    const char* name;
    Set largest;  // with a prompt of 3 tokens, a context of 256 and a vocabulary of 64
    Set huge;
  };
  const Case kCases[] = {
      {"max_tokens", [](Submit&) {}, [](Submit& s) { s.sampling.max_tokens = kHuge; }},
      {"min_tokens", [](Submit& s) { s.sampling.min_tokens = 253; },
       [](Submit& s) { s.sampling.min_tokens = s.sampling.max_tokens = kHuge; }},
      {"top_k", [](Submit& s) { s.sampling.top_k = 63; },
       [](Submit& s) { s.sampling.top_k = kHuge; }},
      {"seed", [](Submit&) {},
       [](Submit& s) { s.sampling.seed = std::numeric_limits<uint64_t>::max(); }},
      {"priority", [](Submit&) {}, [](Submit& s) { s.priority = kHuge; }},
      {"window", [](Submit& s) { s.initial_window = 253; },
       [](Submit& s) { s.initial_window = std::numeric_limits<uint32_t>::max(); }},
      {"temperature", [](Submit&) {}, [](Submit& s) { s.sampling.temperature = 100.0f; }},
  };
  for (const Case& each : kCases) {
    const int64_t largest = BytesOf(each.largest);
    EXPECT_LE(BytesOf(each.huge), largest) << each.name;
    // The count sees what a request really takes.
    EXPECT_GT(largest, 253 * static_cast<int64_t>(sizeof(TokenId))) << each.name;
  }
}

}  // namespace
}  // namespace quire::test
