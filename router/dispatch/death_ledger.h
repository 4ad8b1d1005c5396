// Under which prompts workers died: what tells a poisonous one from an unlucky one.
//
// Owner: the dispatcher. Pure values; time comes in as an argument.
//  1. A lost link is a loss that is open: it counts as a suspicion against the prompts that ran
//     there until the worker's next word says whether its epoch died (a death) or lives (nothing).
//  2. A death that was told by a refused connection stays open: it is taken back if that epoch
//     greets again, and with it a refusal that it led to.
//  3. A worker has at most one open loss, since each Hello closes it. A loss counts once for a
//     prompt, in however many requests it ran there.
//  4. A prompt is known as long as a live request holds it. Beyond that `max_remembered` are kept
//     that have deaths or suspicions, each for `remembered_for` after its last loss; the oldest
//     gives way.
//  5. It is cleared when a request with it ends well, at least as far on as those under which
//     workers died.
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
  // Prompts with the outputs that the furthest request with each had.
  using Under = std::map<PromptKey, uint64_t>;

  explicit DeathLedger(const DeathLedgerOptions& options) : options_(options) {}

  // The link to this worker was lost while these prompts ran there.
  void Lost(WorkerIndex worker, const Under& prompts, Micros now);
  // The process of the open loss is gone; its epoch may still prove to live. Returns whose count of
  // deaths grew.
  std::vector<PromptKey> Refused(WorkerIndex worker);
  // It greeted: with a new epoch, so that the loss was a death, or with the same, so that it was
  // none. Closes the loss; returns whose count of deaths grew.
  std::vector<PromptKey> Died(WorkerIndex worker);
  void Lives(WorkerIndex worker);
  // A death without a loss: a step that is stuck.
  void Stuck(const Under& prompts, Micros now);

  // A live request has this prompt. False, and nothing is held: nothing is known of it.
  bool Hold(const PromptKey& prompt);
  void Release(const PromptKey& prompt, Micros now);
  void EndedWell(const PromptKey& prompt, uint64_t outputs);

  Count Of(const PromptKey& prompt) const;
  bool Refuses(const PromptKey& prompt, Micros now);
  bool empty() const { return entries_.empty(); }
  size_t known() const { return entries_.size(); }
  size_t remembered() const { return released_.size(); }  // that no live request holds
  uint64_t forgotten() const { return forgotten_; }       // that gave way to others

 private:
  struct Loss {
    std::set<PromptKey> prompts;
    bool counted = false;  // as a death, by a refused connection
  };
  struct Entry {
    Count count;
    uint64_t reached = 0;  // outputs
    uint32_t holders = 0;
  };
  Entry& Touch(const PromptKey& prompt, uint64_t outputs, Micros now);
  std::vector<PromptKey> CountLoss(Loss& loss);
  void Expire(Micros now);
  // Clears what is known, and what is open.
  void Clear(const PromptKey& prompt);
  void DropIfIdle(const PromptKey& prompt);

  const DeathLedgerOptions options_;
  std::map<WorkerIndex, Loss> losses_;
  std::map<PromptKey, Entry> entries_;               // each has holders or a count
  std::set<std::pair<Micros, PromptKey>> released_;  // by last loss: those without holders
  uint64_t forgotten_ = 0;
};

}  // namespace quire
