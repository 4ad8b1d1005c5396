#include "worker/scheduler/scheduler.h"

#include <algorithm>
#include <tuple>
#include <utility>

#include "common/check.h"

namespace quire {
namespace {

bool Before(const Sequence* a, const Sequence* b) {
  return std::tie(a->priority, a->arrival, a->choice) <
         std::tie(b->priority, b->arrival, b->choice);
}

}  // namespace

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

void Scheduler::Remove(Sequence& sequence) {
  QUIRE_CHECK(sequence.place != SequencePlace::kNone);
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

void Scheduler::PlanAdmissions() {
  while (!waiting_.empty() && prefill_budget_ > 0 && !free_rows_.empty()) {
    Sequence& head = *waiting_.front();
    if (head.steps_in_flight > 0 || !Admit(head)) return;
  }
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
        (candidate->planned == victim->planned && Before(victim, candidate))) {
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

void Scheduler::GiveBirth(Sequence& sequence) {
  QUIRE_CHECK(sequence.row < 0 && sequence.steps_in_flight == 0);
  QUIRE_CHECK(!free_rows_.empty());
  sequence.row = free_rows_.back();
  free_rows_.pop_back();
  sequence.admitted = true;
  sequence.told_blocks.assign(options_.cache.kinds.size(), 0);
  sequence.told_first_live.assign(options_.cache.kinds.size(), 0);
  sequence.told_tokens = 0;
  RowBirth& birth = plan_->born.emplace_back();
  birth.row = sequence.row;
  birth.sequence = sequence.id;
  birth.choice = sequence.choice;
  birth.prompt_length = sequence.prompt_length;
  birth.sampling = *sequence.sampling;
  birth.end_ids = sequence.end_ids;
}

void Scheduler::ScheduleRow(Sequence& sequence, int32_t q_len) {
  QUIRE_CHECK(sequence.row >= 0 && sequence.last_plan <= launched_);
  QUIRE_CHECK(q_len > 0 && q_len <= sequence.Pending());
  TellBlocks(sequence);
  const int64_t end = sequence.planned + q_len;
  const int64_t tell_end = std::min<int64_t>(end, static_cast<int64_t>(sequence.tokens.size()));
  StepRow& row = plan_->rows.emplace_back();
  row.row = sequence.row;
  row.first_position = static_cast<int32_t>(sequence.planned);
  row.q_len = q_len;
  row.token_offset = static_cast<int32_t>(plan_->tokens.size());
  row.token_count = static_cast<int32_t>(std::max<int64_t>(0, tell_end - sequence.told_tokens));
  row.sample = end == sequence.KnownLength();
  if (row.token_count > 0) {
    const auto first = sequence.tokens.begin() + sequence.told_tokens;
    plan_->tokens.insert(plan_->tokens.end(), first, first + row.token_count);
  }
  sequence.told_tokens = end + (row.sample ? 1 : 0);  // the runner knows its own sample

  // The books know two kinds of computed tokens: the prompt's, once, and whatever is done again.
  const int64_t booked_end = std::max<int64_t>(sequence.prompt_length, sequence.high_water);
  const int64_t booked = std::clamp<int64_t>(booked_end - sequence.planned, 0, q_len);
  const int64_t again = std::clamp<int64_t>(sequence.high_water - sequence.planned, 0, booked);
  sequence.computed_total += booked;
  sequence.recomputed_total += again;
  if (!sequence.off_the_books) {
    totals_.computed_tokens += static_cast<uint64_t>(booked);
    totals_.recomputed_tokens += static_cast<uint64_t>(again);
  }
  sequence.planned = end;
  sequence.last_plan = plan_->number;
  ++sequence.steps_in_flight;
  if (row.sample) ++sequence.samples_in_flight;
  rows_->push_back({&sequence, sequence.incarnation, q_len, row.sample});
}

// Tells the runner's row which of its blocks are new and which are gone.
void Scheduler::TellBlocks(Sequence& sequence) {
  int32_t group = 0;
  for (size_t kind = 0; kind < sequence.blocks.kinds.size(); ++kind) {
    const KindBlocks& table = sequence.blocks.kinds[kind];
    const int32_t groups = options_.cache.kinds[kind].groups;
    const int32_t count = static_cast<int32_t>(table.blocks.size());
    QUIRE_CHECK(sequence.told_blocks[kind] <= count);
    if (table.first_live > sequence.told_first_live[kind]) {
      for (int32_t g = 0; g < groups; ++g) {
        plan_->drops.push_back({sequence.row, group + g, table.first_live});
      }
      sequence.told_first_live[kind] = table.first_live;
    }
    for (int32_t b = std::max(sequence.told_blocks[kind], table.first_live); b < count; ++b) {
      int32_t page = table.blocks[b].value();
      for (int32_t g = 0; g < groups; ++g, page = kv_.pool().NextPage(page)) {
        QUIRE_CHECK(page >= 0);
        plan_->appends.push_back({sequence.row, group + g, b, page});
      }
    }
    sequence.told_blocks[kind] = count;
    group += groups;
  }
}

bool Scheduler::CommitRow(const PlannedRow& row, TokenId token) {
  Sequence& sequence = *row.sequence;
  QUIRE_CHECK(sequence.steps_in_flight > 0);
  --sequence.steps_in_flight;
  if (row.sample) {
    QUIRE_CHECK(sequence.samples_in_flight > 0);
    --sequence.samples_in_flight;
  }
  if (sequence.place == SequencePlace::kNone) return false;
  if (sequence.incarnation == row.incarnation) {
    sequence.computed += row.q_len;
    QUIRE_CHECK(sequence.computed <= sequence.planned);
    kv_.FreeBehindWindow(sequence.blocks, sequence.computed);
  }
  if (row.sample && token >= 0) sequence.tokens.push_back(token);
  return true;
}

void Scheduler::CommitStep(uint64_t number, std::span<const PlannedRow> rows) {
  QUIRE_CHECK_MSG(number == committed_ + 1, "steps are committed in order");
  QUIRE_CHECK(number <= launched_ && !rows.empty());
  committed_ = number;
  for (Leaving& leaving : leaving_) {
    if (leaving.last_plan <= committed_) kv_.Release(leaving.blocks);
  }
  std::erase_if(leaving_, [](const Leaving& leaving) { return leaving.blocks.kinds.empty(); });
}

void Scheduler::ReleaseRow(Sequence& sequence) {
  QUIRE_CHECK(sequence.row >= 0);
  retiring_rows_.push_back(sequence.row);
  free_rows_.push_back(sequence.row);
  sequence.row = -1;
}

void Scheduler::ReleaseBlocks(Sequence& sequence) {
  if (!sequence.HoldsBlocks()) return;
  if (sequence.steps_in_flight == 0) {
    kv_.Release(sequence.blocks);
  } else {
    QUIRE_CHECK(sequence.last_plan > committed_);
    leaving_.push_back({sequence.last_plan, PagesHeldBy(sequence), std::move(sequence.blocks)});
    sequence.blocks.kinds.clear();
  }
  QUIRE_CHECK(!sequence.HoldsBlocks());
}

void Scheduler::Insert(std::vector<Sequence*>& list, Sequence& sequence, SequencePlace place) {
  QUIRE_CHECK(sequence.place == SequencePlace::kNone);
  list.insert(std::upper_bound(list.begin(), list.end(), &sequence, Before), &sequence);
  sequence.place = place;
}

void Scheduler::Take(Sequence& sequence) {
  std::vector<Sequence*>& list = sequence.place == SequencePlace::kWaiting   ? waiting_
                                 : sequence.place == SequencePlace::kRunning ? running_
                                                                             : paused_;
  const auto found = std::find(list.begin(), list.end(), &sequence);
  QUIRE_CHECK_MSG(found != list.end(), "a sequence is not where it says");
  list.erase(found);
  sequence.place = SequencePlace::kNone;
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

SchedulerLoad Scheduler::Load() const {
  SchedulerLoad load;
  load.running_rows = static_cast<uint32_t>(running_.size());
  load.waiting = static_cast<uint32_t>(waiting_.size());
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
    QUIRE_CHECK(std::is_sorted(list.begin(), list.end(), Before));
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
  QUIRE_CHECK(free_rows_.size() + running_.size() == row_in_use.size());
  for (int32_t row : free_rows_) QUIRE_CHECK(!row_in_use[row]);
  for (const Leaving& leaving : leaving_) {
    QUIRE_CHECK(leaving.last_plan > committed_);
    tables.push_back(&leaving.blocks);
  }
  kv_.CheckInvariants(tables);
}

}  // namespace quire
