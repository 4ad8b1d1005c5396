// Under which prompts workers died, which separates a harmful prompt from an unlucky one.
//
// Owner: the dispatcher. Pure values; time comes in as an argument.
//  1. A lost link is an open loss: it counts as a suspicion against the prompts that ran there
//     until the worker's next sign of life shows whether its epoch died (a death) or lives
//     (nothing).
//  2. A death that a refused connection reported stays open: it is taken back, with any refusal
//     that it caused, if that epoch greets again.
//  3. A worker has at most one open loss, since each Hello closes it. A loss counts once for a
//     prompt, even if several requests with it ran there.
//  4. A prompt is known as long as a live request holds it. Beyond that, at most `max_remembered`
//     prompts with deaths or suspicions are kept, each for `remembered_for` after its last loss;
//     the oldest is dropped first.
//  5. A prompt is cleared when a request with it ends well after at least as many outputs as those
//     under which workers died.
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include "common/ids.h"
#include "common/runtime/runtime.h"
#include "common/wire/values.h"
#include "router/core/limits.h"

namespace quire {

// A prompt by its hash together with model, adapter and salt, so that one tenant's prompt says
// nothing about another's.
struct PromptKey {
  uint64_t low = 0, high = 0;
  auto operator<=>(const PromptKey&) const = default;
};
PromptKey PromptKeyOf(const Submit& submit);

struct DeathLedgerOptions {
  uint32_t max_deaths = 3;  // then the prompt is refused
  size_t max_remembered = 1024;
  Micros remembered_for = 600 * kMicrosPerSecond;
};

class DeathLedger {
 public:
  struct Count {
    uint32_t deaths = 0;
    uint32_t suspicions = 0;  // of losses that are open and not known to be deaths
    Micros last_loss = 0;
    uint32_t total() const { return deaths + suspicions; }
  };
  // Prompts, each with the outputs of the request with it that had the most.
  using Under = std::map<PromptKey, uint64_t>;

  explicit DeathLedger(const DeathLedgerOptions& options) : options_(options) {}

  // The link to this worker was lost while these prompts ran there.
  void Lost(WorkerIndex worker, const Under& prompts, Micros now);
  // The process of the open loss is gone; its epoch may still prove to live. Returns the prompts
  // whose count of deaths grew.
  std::vector<PromptKey> Refused(WorkerIndex worker);
  // The worker greeted: a new epoch means that the loss was a death, the same epoch that it was
  // none. Closes the loss; returns the prompts whose count of deaths grew.
  std::vector<PromptKey> Died(WorkerIndex worker);
  void Lives(WorkerIndex worker);
  // A death without a loss: a step that is stuck.
  void Stuck(const Under& prompts, Micros now);

  // A live request has this prompt. False when nothing is known of it; then nothing is held.
  bool Hold(const PromptKey& prompt);
  void Release(const PromptKey& prompt, Micros now);
  void EndedWell(const PromptKey& prompt, uint64_t outputs);

  Count Of(const PromptKey& prompt) const;
  bool Refuses(const PromptKey& prompt, Micros now);
  bool empty() const { return entries_.empty(); }
  size_t known() const { return entries_.size(); }
  size_t remembered() const { return released_.size(); }  // prompts that no live request holds
  uint64_t forgotten() const { return forgotten_; }       // prompts that were dropped for others

 private:
  struct Loss {
    std::set<PromptKey> prompts;
    bool counted = false;  // counted as a death because of a refused connection
  };
  struct Entry {
    Count count;
    uint64_t reached = 0;  // outputs
    uint32_t holders = 0;
  };
  Entry& Touch(const PromptKey& prompt, uint64_t outputs, Micros now);
  std::vector<PromptKey> CountLoss(Loss& loss);
  void Expire(Micros now);
  // Clears the counts, including open ones.
  void Clear(const PromptKey& prompt);
  void DropIfIdle(const PromptKey& prompt);

  const DeathLedgerOptions options_;
  std::map<WorkerIndex, Loss> losses_;
  std::map<PromptKey, Entry> entries_;               // each has holders or a count
  std::set<std::pair<Micros, PromptKey>> released_;  // by last loss: those without holders
  uint64_t forgotten_ = 0;
};

}  // namespace quire
