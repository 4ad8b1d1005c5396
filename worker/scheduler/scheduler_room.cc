// Whose pages are enough: admission, the length of a chunk, and who gives way when there is no
// room.
#include <algorithm>

#include "common/check.h"
#include "worker/scheduler/scheduler.h"

namespace quire {

// Victims are chosen before any row is planned, so that they are the right ones and not the last
// ones.
void Scheduler::MakeRoomForDecodes() {
  int64_t needed = 0;
  for (const Sequence* sequence : running_) {
    if (WantsDecode(*sequence))
      needed += kv_.PagesToExtend(sequence->blocks, sequence->planned + 1);
  }
  while (needed > kv_.pool().free()) {
    if (needed <= kv_.pool().free() + LeavingPages()) return;
    Sequence* victim = PickVictim(/*with_rows=*/true, nullptr);
    QUIRE_CHECK_MSG(victim != nullptr, "pages are needed and nobody holds any");
    if (victim->row >= 0 && running_.size() == 1 && StepsInFlight()) return;
    QUIRE_CHECK_MSG(victim->row < 0 || running_.size() > 1, "one sequence alone does not fit");
    if (victim->row >= 0 && WantsDecode(*victim)) {
      needed -= kv_.PagesToExtend(victim->blocks, victim->planned + 1);
    }
    Preempt(*victim);
  }
}

// The longest chunk within the budget for which pages are free, cut at a block's end; 0 when none
// are.
int64_t Scheduler::AffordableChunk(const Sequence& sequence) const {
  const int64_t block_size = options_.cache.block_size;
  int64_t end =
      sequence.planned + std::min(sequence.prefill_end - sequence.planned, prefill_budget_);
  while (end > sequence.planned && kv_.PagesToExtend(sequence.blocks, end) > kv_.pool().free()) {
    end = (end - 1) / block_size * block_size;
  }
  return std::max<int64_t>(0, end - sequence.planned);
}

bool Scheduler::MakeRoomForPrefill(Sequence& sequence) {
  while (AffordableChunk(sequence) == 0) {
    if (LeavingPages() > 0) return false;  // wait for what is coming back
    Sequence* victim = PickVictim(/*with_rows=*/true, nullptr);
    if (victim == nullptr) return false;
    if (victim == &sequence && (StepsInFlight() && running_.size() == 1)) return false;
    QUIRE_CHECK_MSG(victim != &sequence || running_.size() > 1, "one sequence alone does not fit");
    Preempt(*victim);
    if (victim == &sequence) return false;
  }
  return true;
}

int64_t Scheduler::LargestChunk() const {
  return std::max(options_.max_num_batched_tokens, options_.cache.block_size);
}

bool Scheduler::Admit(Sequence& head) {
  const int64_t length = static_cast<int64_t>(head.tokens.size());
  // Room for the whole of it, so that those admitted seldom have to give way again.
  int64_t pages = head.HoldsBlocks() ? kv_.PagesToExtend(head.blocks, head.planned + 1)
                                     : kv_.PeakPages(length, LargestChunk());
  if (!running_.empty()) pages += kv_.pool().total() / 100;
  pages = std::min(pages, kv_.pool().total() - (head.HoldsBlocks() ? PagesHeldBy(head) : 0));
  if (pages > kv_.pool().free() && !ReclaimForAdmission(head, pages)) return false;
  Take(head);
  if (!head.HoldsBlocks()) {
    QUIRE_CHECK(head.planned == 0 && head.computed == 0);
    head.prefill_end = length;
  }
  Insert(running_, head, SequencePlace::kRunning);
  GiveBirth(head);
  const int64_t chunk = head.Prefilling() ? AffordableChunk(head) : 1;
  QUIRE_CHECK_MSG(chunk > 0, "a sequence was admitted without room");
  const bool extended = kv_.Extend(head.blocks, head.planned + chunk);
  QUIRE_CHECK(extended);
  prefill_budget_ -= chunk;
  ScheduleRow(head, static_cast<int32_t>(chunk));
  return true;
}

// Takes pages from those without a row: they do not advance and may hold up those that could.
bool Scheduler::ReclaimForAdmission(const Sequence& head, int64_t pages) {
  int64_t reclaimable = 0;
  for (const Sequence* holder : paused_) reclaimable += PagesHeldBy(*holder);
  for (const Sequence* holder : waiting_) {
    if (holder != &head) reclaimable += PagesHeldBy(*holder);
  }
  if (pages > kv_.pool().free() + reclaimable) return false;
  while (pages > kv_.pool().free()) {
    Sequence* victim = PickVictim(/*with_rows=*/false, &head);
    if (victim == nullptr) return false;  // their pages come back with a step in flight
    Preempt(*victim);
  }
  return true;
}

Sequence* Scheduler::PickVictim(bool with_rows, const Sequence* spared) const {
  Sequence* victim = nullptr;
  const auto consider = [&](Sequence* candidate) {
    if (!candidate->HoldsBlocks() || candidate == spared) return;
    if (candidate->last_plan > launched_) return;  // part of the plan that is being made
    if (victim == nullptr || candidate->planned < victim->planned ||
        (candidate->planned == victim->planned && RunsBefore(victim, candidate))) {
      victim = candidate;
    }
  };
  for (Sequence* candidate : paused_) consider(candidate);
  for (Sequence* candidate : waiting_) consider(candidate);
  if (victim != nullptr || !with_rows) return victim;
  for (Sequence* candidate : running_) consider(candidate);
  return victim;
}

void Scheduler::Preempt(Sequence& victim) {
  QUIRE_CHECK(victim.HoldsBlocks());
  QUIRE_CHECK(victim.last_plan <= launched_);
  ++totals_.preemptions;
  if (victim.row >= 0) ReleaseRow(victim);
  ReleaseBlocks(victim);
  victim.high_water = std::max(victim.high_water, victim.planned);
  victim.computed = 0;
  victim.planned = 0;
  victim.prefill_end = 0;
  ++victim.incarnation;
  if (victim.place != SequencePlace::kRunning) return;
  Take(victim);
  Insert(waiting_, victim, SequencePlace::kWaiting);
}

int64_t Scheduler::PagesHeldBy(const Sequence& sequence) const {
  int64_t pages = 0;
  for (size_t kind = 0; kind < sequence.blocks.kinds.size(); ++kind) {
    const KindBlocks& table = sequence.blocks.kinds[kind];
    pages += (static_cast<int64_t>(table.blocks.size()) - table.first_live) *
             options_.cache.kinds[kind].groups;
  }
  return pages;
}

int64_t Scheduler::LeavingPages() const {
  int64_t pages = 0;
  for (const Leaving& leaving : leaving_) pages += leaving.pages;
  return pages;
}

}  // namespace quire
