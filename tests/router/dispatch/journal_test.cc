// Windows, refusals and the journal on their own.
#include "router/dispatch/journal.h"

#include <gtest/gtest.h>

#include "router/dispatch/refusal.h"
#include "router/dispatch/window.h"

namespace quire {
namespace {

TEST(Window, GrantsMoveInQuarters) {
  Window window(100);
  EXPECT_EQ(window.Room(0), 100u);
  window.Begin(100);
  EXPECT_FALSE(window.Take(24).has_value());
  EXPECT_EQ(window.Take(25), 125u);
  EXPECT_FALSE(window.Take(10).has_value()) << "what was taken stays taken";
  EXPECT_EQ(window.taken(), 25u);
  EXPECT_EQ(window.Room(125), 1u) << "used up";
  EXPECT_EQ(window.Room(130), 1u);
}

TEST(Refusals, BlameTheClientsField) {
  const ApiError error =
      ErrorOfRefusal({{}, RefusalCode::kInvalid, "prompt_ids", "prompt_ids: is too odd", 0});
  EXPECT_EQ(error.param, "prompt");
  EXPECT_EQ(error.message, "prompt: is too odd");
  EXPECT_EQ(ErrorOfRefusal({{}, RefusalCode::kQueueFull, "", "", 9'999'999}).retry_after_ms,
            60'000u)
      << "whatever a worker proposes";
  for (int code = 0; code <= static_cast<int>(RefusalCode::kDeadlinePassed); ++code) {
    const Refused refused{{}, static_cast<RefusalCode>(code), "", "", 0};
    const bool again = WorthAnotherWorker(refused.code);
    EXPECT_EQ(again, ErrorOfRefusal(refused).code == ApiCode::kUnavailable ||
                         ErrorOfRefusal(refused).code == ApiCode::kInternal)
        << code;
  }
}

TEST(JournalTest, TakesEachIndexOnce) {
  Journal journal({{}, {}}, 100);
  const std::vector<TokenId> two = {1, 2};
  EXPECT_EQ(journal.Accept(0, 0, two, 0), Verdict::kAccepted);
  EXPECT_EQ(journal.Accept(0, 0, two, 0), Verdict::kDuplicate);
  EXPECT_EQ(journal.Accept(0, 1, two, 0), Verdict::kDuplicate) << "also where they overlap";
  EXPECT_EQ(journal.Accept(0, 3, two, 0), Verdict::kGap);
  EXPECT_EQ(journal.Accept(2, 0, two, 0), Verdict::kNoChoice);
  EXPECT_EQ(journal.Accept(1, 0, two, 2), Verdict::kAccepted) << "up to the window";
  EXPECT_EQ(journal.Accept(1, 2, two, 3), Verdict::kOverrun);
  EXPECT_EQ(journal.accepted(0), 2u);
  journal.End(0, 1);
  EXPECT_EQ(journal.accepted(0), 1u);
  EXPECT_EQ(journal.Accept(0, 1, two, 0), Verdict::kEnded);
  EXPECT_FALSE(journal.AllEnded());
  journal.End(1, 2);
  EXPECT_TRUE(journal.AllEnded());
  EXPECT_EQ(journal.TotalOutputs(), 3u);
}

}  // namespace
}  // namespace quire
