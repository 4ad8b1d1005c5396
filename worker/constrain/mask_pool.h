// The texts that constrained rows write, and the masks of their next tokens, which a few threads
// compute while a step computes.
//
// Owner: worker/main. All methods belong to the engine's thread; the pool's own threads compute.
// Invariants:
// 1. The mask of a text is a function of its rules and the tokens that it has accepted.
// 2. One thread at a time works on a text. A thread that needs a mask that is not begun
//    computes it itself: with 0 threads everything happens in MaskOf.
// 3. The matchers of all texts hold at most max_bytes: the text that would exceed this fails.
// 4. A step of running rows allocates nothing here; llguidance does.
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
  // The text takes a further token. Requires: its last mask has been used.
  void Accept(uint64_t sequence, TokenId token);
  // Hands all texts that have begun or taken a token to the threads, at once.
  void Send();
  // Requires: its last mask has been used.
  TextState Look(uint64_t sequence) const;
  // Why the text has failed: "constraint: …".
  const std::string& WhyFailed(uint64_t sequence) const;
  void End(uint64_t sequence);

  std::span<const uint32_t> MaskOf(uint64_t sequence) override;

  size_t size() const { return texts_.size(); }
  size_t bytes() const { return bytes_.load(std::memory_order_relaxed); }

 private:
  enum class Stage : uint8_t { kReady, kWaits, kBusy, kGone };
  struct Text;
  struct Series;

  Text& Find(uint64_t sequence) const;
  void Work(Text& text);
  absl::Status Advance(Text& text);
  absl::Status AcceptTokens(Text& text);
  void CheckEnd(Text& text);
  absl::Status FillMask(Text& text);
  absl::Status ChargeMatcher(Text& text);
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
  std::vector<std::shared_ptr<Text>> batch_;  // not handed to the threads yet
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
