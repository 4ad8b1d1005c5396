// The texts that constrained rows write, and the masks of their next tokens, which a few threads
// compute while a step computes: for a row with drafts one behind each of them.
//
// Owner: worker/main. All methods belong to the engine's thread; the pool's own threads compute.
// Invariants:
// 1. The mask of a text is a function of its rules and the tokens that it has accepted.
// 2. One thread at a time works on a text. A thread that needs a mask that is not begun
//    computes it itself: with 0 threads everything happens in MaskOf. A text that has begun or
//    taken a token is the engine's until it is sent.
// 3. The matchers of all texts hold at most max_bytes: the text that would exceed this fails.
// 4. A step of running rows without drafts allocates nothing here; llguidance does.
// 5. Drafts change no mask: those that may turn out wrong are tried on a copy of the text's state.
//    A text that has gone along with a draft which is not accepted is of no use any more (Astray).
// 6. A text waits for a thread once, however often it is handed on.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <thread>
#include <unordered_map>
#include <vector>

#include "common/grammar/grammar.h"
#include "common/ids.h"
#include "common/metrics/metrics.h"
#include "common/runtime/runtime.h"
#include "common/sync.h"
#include "common/wire/thought_budget.h"
#include "worker/runner/step_masks.h"

namespace quire {

struct MaskPoolOptions {
  int threads = 0;
  int32_t vocab_size = 0;  // the width of masks
  size_t max_bytes = size_t{128} << 20;
  bool looks_ahead = true;       // Ahead() is known
  const Clock* clock = nullptr;  // for the metrics; null: nothing is measured
  Metrics* metrics = nullptr;    // outlives the pool; may be null
};

// What holds for a text: a grammar, a budget of its thoughts, or both.
struct TextRules {
  std::shared_ptr<const grammar::Grammar> grammar = nullptr;
  std::shared_ptr<const ThoughtBudget> thoughts = nullptr;
};

// Finished: the text is complete, and nothing can follow it.
enum class TextState : uint8_t { kGoesOn, kFinished, kFailed };

class MaskPool final : public StepMasks {
 public:
  explicit MaskPool(const MaskPoolOptions& options);
  ~MaskPool() override;

  // A sequence begins a text that has these tokens already.
  void Begin(uint64_t sequence, TextRules rules, std::span<const TokenId> outputs);
  bool Has(uint64_t sequence) const { return texts_.contains(sequence); }
  // The text takes a further token. A step with drafts brings several, one after the other.
  // Requires: its last masks have been used.
  void Accept(uint64_t sequence, TokenId token);
  // What has to follow the text's tokens, as far as its last masks showed: each the only token that
  // may. Valid until the text is sent.
  std::span<const TokenId> Ahead(uint64_t sequence) const;
  // The coming step samples the text behind these drafts, too. `ahead`: they are Ahead()'s first.
  // Requires: no budget of thoughts.
  void Draft(uint64_t sequence, std::span<const TokenId> drafts, bool ahead);
  // After a step: hands the texts that have taken tokens to the threads, at once; those that
  // may have drafts in the next step wait for Send.
  void EndStep(bool all_may_have_drafts);
  // The same for all of them.
  void Send();
  // Requires: its last masks have been used. What it is behind as many drafts as it has masks:
  // kGoesOn, unless it ends there.
  TextState Look(uint64_t sequence) const;
  // Its masks: 1 and one for each draft, as far as the text can follow them; 0: it is at its end.
  size_t Masks(uint64_t sequence) const;
  // It went along with drafts that were not accepted.
  bool Astray(uint64_t sequence) const;
  // Why the text has failed: "constraint: …".
  const std::string& WhyFailed(uint64_t sequence) const;
  // Microseconds that its masks have taken so far, where there is a clock.
  int64_t MaskMicros(uint64_t sequence) const;
  void End(uint64_t sequence);

  std::span<const uint32_t> MaskOf(uint64_t sequence, size_t drafts) override;
  std::span<const uint32_t> MaskOf(uint64_t sequence) { return MaskOf(sequence, 0); }

  size_t size() const { return texts_.size(); }
  // Texts that wait for a thread: no more than there are, and those that have ended since.
  size_t queued();
  size_t bytes() const { return bytes_.load(std::memory_order_relaxed); }

 private:
  // Held: as kWaits, and not sent yet.
  enum class Stage : uint8_t { kReady, kHeld, kWaits, kBusy, kGone };
  struct Text;
  struct Series;

  Text& Find(uint64_t sequence) const;
  void Hold(const std::shared_ptr<Text>& text);
  void Hand(std::span<std::shared_ptr<Text>> texts);
  void Await(Text& text);
  void Work(Text& text);
  absl::Status Advance(Text& text);
  absl::Status AcceptTokens(Text& text);
  void CheckEnd(Text& text);
  std::span<uint32_t> Bits(Text& text, size_t index) const;
  absl::Status FillMask(Text& text);
  absl::Status FollowDrafts(Text& text);
  static void KeepForced(Text& text);
  void LookAhead(Text& text);
  void WalkAhead(Text& text);
  absl::Status ChargeMatcher(Text& text);
  void Enqueue(std::shared_ptr<Text> text) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool Claim(Text& text) const;
  void Run(int index);
  // The next text in the queue; null: the pool ends.
  std::shared_ptr<Text> Take() ABSL_NO_THREAD_SAFETY_ANALYSIS;
  int64_t Now() const { return options_.clock == nullptr ? 0 : options_.clock->Now(); }

  const MaskPoolOptions options_;
  const size_t words_;
  std::unique_ptr<Series> series_;
  std::atomic<size_t> bytes_{0};  // of the matchers; before the texts, which take theirs away
  std::unordered_map<uint64_t, std::shared_ptr<Text>> texts_;
  std::vector<std::shared_ptr<Text>> batch_;  // held
  int64_t waited_us_ = 0;                     // for masks, in this step
  std::atomic<int64_t> worked_us_{0};         // on masks, by all threads

  Mutex mutex_;
  std::condition_variable wake_;
  std::vector<std::shared_ptr<Text>> queue_ ABSL_GUARDED_BY(mutex_);
  size_t next_ ABSL_GUARDED_BY(mutex_) = 0;  // of the queue; those before it are taken
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::vector<std::thread> threads_;
};

}  // namespace quire
