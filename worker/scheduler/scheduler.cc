#include "worker/scheduler/scheduler.h"

#include <algorithm>
#include <utility>

#include "common/check.h"

namespace quire {
int32_t MaxStepTokens(int32_t max_num_seqs, int32_t max_num_batched_tokens, int32_t block_size) {
  return std::max(max_num_batched_tokens, max_num_seqs + block_size);
}

Scheduler::Scheduler(const SchedulerOptions& options)
    : options_(options), kv_(options.cache, options.on_page_freed) {
  QUIRE_CHECK(options_.max_num_seqs > 0);
  QUIRE_CHECK(options_.max_num_batched_tokens > 0);
  for (int32_t row = options_.max_num_seqs; row-- > 0;) free_rows_.push_back(row);
}

bool Scheduler::CanEverFit(int64_t length) const {
  return kv_.PeakPages(length, options_.cache.block_size) <= kv_.pool().total();
}

void Scheduler::Enqueue(Sequence& sequence) {
  QUIRE_CHECK(sequence.place == SequencePlace::kNone);
  QUIRE_CHECK(!sequence.tokens.empty() && sequence.prompt_length > 0);
  QUIRE_CHECK(sequence.OutputCount() < sequence.output_limit);
  Insert(waiting_, sequence, SequencePlace::kWaiting);
}

void Scheduler::EnqueueBehind(Sequence& sequence, Sequence& leader) {
  // The last token of the prompt is computed by each choice: its logits are theirs alone.
  if (sequence.prompt_length < 2) return Enqueue(sequence);
  QUIRE_CHECK(leader.place == SequencePlace::kWaiting && leader.computed == 0);
  QUIRE_CHECK(sequence.prompt_length == leader.prompt_length);
  QUIRE_CHECK(sequence.OutputCount() < sequence.output_limit);
  sequence.leader = &leader;
  ++leader.followers;
  Insert(following_, sequence, SequencePlace::kFollowing);
}

void Scheduler::Remove(Sequence& sequence) {
  QUIRE_CHECK(sequence.place != SequencePlace::kNone);
  if (sequence.followers > 0) ReplaceLeader(sequence);
  if (sequence.leader != nullptr) --sequence.leader->followers;
  sequence.leader = nullptr;
  Take(sequence);
  if (sequence.row >= 0) ReleaseRow(sequence);
  ReleaseBlocks(sequence);
}

void Scheduler::Grant(Sequence& sequence, int64_t up_to) {
  sequence.window_end = std::max(sequence.window_end, up_to);
  if (sequence.place != SequencePlace::kPaused || sequence.WindowUsedUp()) return;
  Take(sequence);
  Insert(waiting_, sequence, SequencePlace::kWaiting);
}

bool Scheduler::Plan(StepPlan& plan, std::vector<PlannedRow>& rows) {
  plan.Clear();
  rows.clear();
  plan.number = launched_ + 1;
  plan_ = &plan;
  rows_ = &rows;
  PauseStalled();
  MakeRoomForDecodes();
  PlanDecodes();
  // Decodes are never held back, and prefill always gets a block: whatever the budget says.
  prefill_budget_ =
      std::max<int64_t>(options_.cache.block_size, int64_t{options_.max_num_batched_tokens} -
                                                       static_cast<int64_t>(plan.rows.size()));
  PlanPrefills();
  PlanAdmissions();
  plan_ = nullptr;
  rows_ = nullptr;
  if (plan.rows.empty()) {
    QUIRE_CHECK_MSG(StepsInFlight() || Idle(), "a pass made no progress and named nobody");
    return false;
  }
  QUIRE_CHECK(plan.rows.size() == rows.size());
  QUIRE_CHECK(rows.size() <= static_cast<size_t>(options_.max_num_seqs));
  plan.retired.swap(retiring_rows_);
  launched_ = plan.number;
  return true;
}

// A row whose window is used up leaves the batch and keeps its blocks.
void Scheduler::PauseStalled() {
  scan_ = running_;
  for (Sequence* sequence : scan_) {
    if (sequence->Prefilling() || !sequence->WindowUsedUp()) continue;
    if (sequence->OutputsKnown() >= sequence->output_limit) continue;  // its end is in flight
    ReleaseRow(*sequence);
    Take(*sequence);
    Insert(paused_, *sequence, SequencePlace::kPaused);
  }
}

bool Scheduler::WantsDecode(const Sequence& sequence) const {
  return !sequence.Prefilling() && sequence.OutputsKnown() < sequence.output_limit &&
         !sequence.WindowUsedUp();
}

void Scheduler::PlanDecodes() {
  for (Sequence* sequence : running_) {
    if (!WantsDecode(*sequence)) continue;
    QUIRE_CHECK(sequence->Pending() == 1);
    if (!kv_.Extend(sequence->blocks, sequence->planned + 1)) {
      QUIRE_CHECK_MSG(StepsInFlight(), "a decode row was held back");
      continue;
    }
    ScheduleRow(*sequence, 1);
  }
}

void Scheduler::PlanPrefills() {
  scan_ = running_;
  for (Sequence* sequence : scan_) {
    if (prefill_budget_ <= 0) return;
    if (sequence->place != SequencePlace::kRunning || !sequence->Prefilling()) continue;
    int64_t chunk = AffordableChunk(*sequence);
    if (chunk == 0) {
      if (!MakeRoomForPrefill(*sequence)) continue;
      chunk = AffordableChunk(*sequence);
    }
    QUIRE_CHECK(chunk > 0);
    const bool extended = kv_.Extend(sequence->blocks, sequence->planned + chunk);
    QUIRE_CHECK(extended);
    prefill_budget_ -= chunk;
    ScheduleRow(*sequence, static_cast<int32_t>(chunk));
  }
}

void Scheduler::PlanAdmissions() {
  while (!waiting_.empty() && prefill_budget_ > 0 && !free_rows_.empty()) {
    Sequence& head = *waiting_.front();
    if (head.steps_in_flight > 0 || !Admit(head)) return;
  }
}

void Scheduler::Insert(std::vector<Sequence*>& list, Sequence& sequence, SequencePlace place) {
  QUIRE_CHECK(sequence.place == SequencePlace::kNone);
  list.insert(std::upper_bound(list.begin(), list.end(), &sequence, RunsBefore), &sequence);
  sequence.place = place;
}

void Scheduler::Take(Sequence& sequence) {
  std::vector<Sequence*>& list = sequence.place == SequencePlace::kWaiting   ? waiting_
                                 : sequence.place == SequencePlace::kRunning ? running_
                                 : sequence.place == SequencePlace::kPaused  ? paused_
                                                                             : following_;
  const auto found = std::find(list.begin(), list.end(), &sequence);
  QUIRE_CHECK_MSG(found != list.end(), "a sequence is not where it says");
  list.erase(found);
  sequence.place = SequencePlace::kNone;
}

SchedulerLoad Scheduler::Load() const {
  SchedulerLoad load;
  load.running_rows = static_cast<uint32_t>(running_.size());
  load.waiting = static_cast<uint32_t>(waiting_.size() + following_.size());
  load.waiting_prefill_tokens = following_.size();  // each its last token of the prompt
  for (const Sequence* sequence : waiting_) {
    load.waiting_prefill_tokens += static_cast<uint64_t>(sequence->Pending());
  }
  for (const Sequence* sequence : running_) {
    if (!sequence->Prefilling()) continue;
    load.running_prefill_tokens += static_cast<uint64_t>(sequence->prefill_end - sequence->planned);
  }
  return load;
}

void Scheduler::CheckInvariants() const {
  std::vector<const SequenceBlocks*> tables;
  std::vector<bool> row_in_use(static_cast<size_t>(options_.max_num_seqs), false);
  const auto check = [&](const std::vector<Sequence*>& list, SequencePlace place) {
    QUIRE_CHECK(std::is_sorted(list.begin(), list.end(), RunsBefore));
    for (const Sequence* sequence : list) {
      QUIRE_CHECK(sequence->place == place);
      QUIRE_CHECK((sequence->row >= 0) == (place == SequencePlace::kRunning));
      QUIRE_CHECK(sequence->computed <= sequence->planned);
      QUIRE_CHECK(sequence->planned <= sequence->KnownLength());
      QUIRE_CHECK(sequence->HoldsBlocks() || sequence->planned == 0);
      QUIRE_CHECK(sequence->steps_in_flight == 0 || sequence->last_plan > committed_);
      tables.push_back(&sequence->blocks);
      if (sequence->row < 0) continue;
      QUIRE_CHECK_MSG(!row_in_use[sequence->row], "two sequences share a row");
      row_in_use[sequence->row] = true;
    }
  };
  check(waiting_, SequencePlace::kWaiting);
  check(running_, SequencePlace::kRunning);
  check(paused_, SequencePlace::kPaused);
  check(following_, SequencePlace::kFollowing);
  for (const Sequence* sequence : following_) {
    QUIRE_CHECK(sequence->leader != nullptr && !sequence->HoldsBlocks());
    const SequencePlace place = sequence->leader->place;
    QUIRE_CHECK(place == SequencePlace::kWaiting || place == SequencePlace::kRunning ||
                (place == SequencePlace::kPaused && sequence->leader->steps_in_flight > 0));
    QUIRE_CHECK_MSG(sequence->leader->computed < sequence->prompt_length - 1,
                    "a prompt is computed and not shared");
  }
  QUIRE_CHECK(free_rows_.size() + running_.size() == row_in_use.size());
  for (int32_t row : free_rows_) QUIRE_CHECK(!row_in_use[row]);
  for (const Leaving& leaving : leaving_) {
    QUIRE_CHECK(leaving.last_plan > committed_);
    tables.push_back(&leaving.blocks);
  }
  kv_.CheckInvariants(tables);
}

}  // namespace quire
