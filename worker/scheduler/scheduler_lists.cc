// The list that each sequence is in: waiting (with its tenant, or with its blocks), running,
// paused.
#include <algorithm>

#include "common/check.h"
#include "worker/scheduler/scheduler.h"

namespace quire {
namespace {

// Lists of the waiting are sorted: arrivals come at the end, so that insertion is cheap.
void InsertSorted(std::vector<Sequence*>& list, Sequence& sequence) {
  list.insert(std::upper_bound(list.begin(), list.end(), &sequence, RunsBefore), &sequence);
}

void EraseSorted(std::vector<Sequence*>& list, Sequence& sequence) {
  const auto found = std::lower_bound(list.begin(), list.end(), &sequence, RunsBefore);
  QUIRE_CHECK_MSG(found != list.end() && *found == &sequence, "a sequence is not where it says");
  list.erase(found);
}

void Append(std::vector<Sequence*>& list, Sequence& sequence) {
  sequence.list_index = static_cast<int32_t>(list.size());
  list.push_back(&sequence);
}

// The last of the list takes its place.
void EraseAt(std::vector<Sequence*>& list, Sequence& sequence) {
  const size_t index = static_cast<size_t>(sequence.list_index);
  QUIRE_CHECK_MSG(index < list.size() && list[index] == &sequence,
                  "a sequence is not where it says");
  list[index] = list.back();
  list[index]->list_index = sequence.list_index;
  list.pop_back();
  sequence.list_index = -1;
}

}  // namespace

// It enters the scheduler; Remove is the counterpart.
void Scheduler::Join(Sequence& sequence) {
  sequence.rank = options_.policy == SchedulingPolicy::kPriority ? sequence.priority : 0;
  sequence.share = &shares_.Join(sequence.tenant);
  sequence.room = 0;
  SyncRoom(sequence);
}

void Scheduler::Insert(Sequence& sequence, SequencePlace place) {
  QUIRE_CHECK(sequence.place == SequencePlace::kNone && sequence.share != nullptr);
  sequence.place = place;
  Tenant& tenant = *sequence.share;
  switch (place) {
    case SequencePlace::kWaiting:
      InsertSorted(sequence.HoldsBlocks() ? resuming_ : tenant.waiting, sequence);
      ++waiting_count_;
      ++tenant.rows_wanted;
      break;
    case SequencePlace::kRunning:
      Append(running_, sequence);
      ++tenant.running;
      break;
    case SequencePlace::kPaused:
      Append(paused_, sequence);
      break;
    case SequencePlace::kFollowing:
      InsertSorted(following_, sequence);
      break;
    case SequencePlace::kNone:
      QUIRE_CHECK_MSG(false, "a sequence is inserted nowhere");
  }
  shares_.Update(tenant);
}

void Scheduler::Take(Sequence& sequence) {
  Tenant& tenant = *sequence.share;
  switch (sequence.place) {
    case SequencePlace::kWaiting:
      EraseSorted(sequence.HoldsBlocks() ? resuming_ : tenant.waiting, sequence);
      --waiting_count_;
      --tenant.rows_wanted;
      break;
    case SequencePlace::kRunning:
      EraseAt(running_, sequence);
      std::erase(prefilling_, &sequence);
      --tenant.running;
      break;
    case SequencePlace::kPaused:
      EraseAt(paused_, sequence);
      break;
    case SequencePlace::kFollowing:
      EraseSorted(following_, sequence);
      break;
    case SequencePlace::kNone:
      QUIRE_CHECK_MSG(false, "a sequence is taken from nowhere");
  }
  sequence.place = SequencePlace::kNone;
  shares_.Update(tenant);
}

// After its blocks have changed.
void Scheduler::SyncRoom(Sequence& sequence) {
  const int64_t room =
      sequence.HoldsBlocks()
          ? static_cast<int64_t>(sequence.blocks.kinds[0].blocks.size()) * options_.cache.block_size
          : 0;
  sequence.share->held_tokens += room - sequence.room;
  sequence.room = room;
  sequence.BlocksChanged();
}

void Scheduler::CheckInvariants() const {
  std::vector<const SequenceBlocks*> tables;
  std::vector<bool> row_in_use(static_cast<size_t>(options_.max_num_seqs), false);
  size_t prefilling = 0;
  const auto check = [&](const std::vector<Sequence*>& list, SequencePlace place) {
    for (const Sequence* sequence : list) {
      QUIRE_CHECK(sequence->place == place && sequence->share != nullptr);
      QUIRE_CHECK((sequence->row >= 0) == (place == SequencePlace::kRunning));
      QUIRE_CHECK(sequence->computed <= sequence->planned);
      QUIRE_CHECK(sequence->planned <= sequence->KnownLength());
      QUIRE_CHECK(sequence->HoldsBlocks() || sequence->planned == 0);
      QUIRE_CHECK(sequence->planned <= sequence->room);
      QUIRE_CHECK_MSG(sequence->chain.blocks * options_.cache.block_size <= sequence->computed,
                      "a block is published that no step has written");
      QUIRE_CHECK(sequence->steps_in_flight == 0 || sequence->last_plan > committed_);
      tables.push_back(&sequence->blocks);
      if (sequence->row < 0) continue;
      prefilling += sequence->Prefilling();
      QUIRE_CHECK_MSG(!row_in_use[sequence->row], "two sequences share a row");
      row_in_use[sequence->row] = true;
    }
  };
  size_t waiting = resuming_.size();
  QUIRE_CHECK(std::is_sorted(resuming_.begin(), resuming_.end(), RunsBefore));
  check(resuming_, SequencePlace::kWaiting);
  for (const Tenant* tenant : shares_.present()) {
    QUIRE_CHECK(std::is_sorted(tenant->waiting.begin(), tenant->waiting.end(), RunsBefore));
    check(tenant->waiting, SequencePlace::kWaiting);
    for (const Sequence* sequence : tenant->waiting) QUIRE_CHECK(!sequence->HoldsBlocks());
    waiting += tenant->waiting.size();
  }
  QUIRE_CHECK(waiting == waiting_count_);
  check(running_, SequencePlace::kRunning);
  check(paused_, SequencePlace::kPaused);
  check(following_, SequencePlace::kFollowing);
  for (const Sequence* sequence : following_) {
    QUIRE_CHECK(sequence->leader != nullptr && !sequence->HoldsBlocks());
    const SequencePlace place = sequence->leader->place;
    QUIRE_CHECK(place == SequencePlace::kWaiting || place == SequencePlace::kRunning ||
                (place == SequencePlace::kPaused && sequence->leader->steps_in_flight > 0));
    QUIRE_CHECK_MSG(sequence->leader->computed < sequence->prompt_length - 1 ||
                        sequence->leader->steps_in_flight > 0,
                    "a prompt is computed and not shared");
  }
  QUIRE_CHECK_MSG(prefilling == prefilling_.size(), "a prefilling row is in no list");
  QUIRE_CHECK(free_rows_.size() + running_.size() == row_in_use.size());
  for (int32_t row : free_rows_) QUIRE_CHECK(!row_in_use[row]);
  for (const LeavingBlocks& leaving : leaving_) {
    QUIRE_CHECK(leaving.last_plan > committed_);
    tables.push_back(&leaving.blocks);
  }
  for (const Sequence* sequence : protected_) QUIRE_CHECK(sequence->row >= 0);
  QUIRE_CHECK(PagesFor(nullptr) >= 0);
  shares_.CheckInvariants();
  kv_.CheckInvariants(tables);
}

}  // namespace quire
