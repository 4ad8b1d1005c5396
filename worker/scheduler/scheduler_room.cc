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
  const int64_t free = kv_.pool().free() - PagesToOwn(sequence);
  while (end > sequence.planned && kv_.PagesToExtend(sequence.blocks, end) > free) {
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

// Room for the whole of it, so that those admitted seldom have to give way again.
int64_t Scheduler::PagesToAdmit(const Sequence& head) const {
  const int64_t length = static_cast<int64_t>(head.tokens.size());
  int64_t pages = head.HoldsBlocks()
                      ? kv_.PagesToExtend(head.blocks, head.planned + 1) + PagesToOwn(head)
                      : kv_.PeakPages(length, LargestChunk());
  if (!running_.empty()) pages += kv_.pool().total() / 100;
  return std::min(pages, kv_.pool().total() - (head.HoldsBlocks() ? PagesHeldBy(head) : 0));
}

bool Scheduler::Admit(Sequence& head) {
  if (PagesToAdmit(head) > kv_.pool().free() && !ReclaimForAdmission(head)) return false;
  Take(head);
  if (!head.HoldsBlocks()) {
    QUIRE_CHECK(head.planned == 0 && head.computed == 0);
    head.prefill_end = static_cast<int64_t>(head.tokens.size());
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
bool Scheduler::ReclaimForAdmission(const Sequence& head) {
  int64_t reclaimable = 0;
  const auto add = [&](const std::vector<Sequence*>& holders) {
    for (const Sequence* holder : holders) {
      if (holder == &head) continue;
      // What it shares with a row comes back with that row; when none runs, all of it does.
      reclaimable += running_.empty() ? PagesHeldBy(*holder) : kv_.PagesToReturn(holder->blocks);
    }
  };
  add(paused_);
  add(waiting_);
  if (PagesToAdmit(head) > kv_.pool().free() + reclaimable) return false;
  while (PagesToAdmit(head) > kv_.pool().free()) {
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
  // Who shares all its pages gives none back: such are taken only when there is nobody else.
  for (const bool giving : {true, false}) {
    for (const std::vector<Sequence*>* holders : {&paused_, &waiting_}) {
      for (Sequence* candidate : *holders) {
        if (!giving || kv_.PagesToReturn(candidate->blocks) > 0) consider(candidate);
      }
    }
    if (victim != nullptr) break;
  }
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
  victim.copy_position = -1;
  ++victim.incarnation;
  // Paused, it may not come back for long.
  if (victim.followers > 0 && victim.place == SequencePlace::kPaused) ReplaceLeader(victim);
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

int64_t Scheduler::PagesToOwn(const Sequence& sequence) const {
  if (sequence.copy_position < 0) return 0;
  return kv_.PagesToOwn(sequence.blocks, sequence.copy_position);
}

int64_t Scheduler::LeavingPages() const {
  int64_t pages = 0;
  for (const Leaving& leaving : leaving_) pages += leaving.pages;
  return pages;
}

}  // namespace quire
