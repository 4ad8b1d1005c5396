// Decides what the next step computes: decode rows first, then prefill chunks within a token and a
// time budget, then new rows; and which sequence is preempted when rows or pages run out.
//
// Owner: Engine, on its thread. Pure: no clock, no I/O, no threads, no randomness. Sequences belong
// to the caller and outlive their stay in the scheduler and every step in flight that names them.
//
// Order: by priority where the policy uses priorities, then the tenant that has been served least
// (fairness.h), then arrival and choice. Preemption is by recompute; the victim is one without a
// row that holds blocks (paused ones) if there is any, otherwise, of the last priority, the one
// with the least to recompute. A sequence that has lost its row kMaxPreemptions times returns with
// all the pages that it can ever need reserved for it, and is not a victim again.
//
// Invariants:
// 1. Every decoding row is in every plan unless it waits for pages that a step in flight will free,
//    or for the step that decides about its drafts. Rows that return from a pause go before
//    prefill.
// 2. A step with prefill work computes at least one block of it (or all of it), whatever decodes
//    need and whatever the time budget is.
// 3. No other sequence passes the first waiting one, in the order above: no starvation.
// 4. Blocks and rows are freed when the last plan that names them has been committed.
// 5. With work that is not paused and nothing in flight, a pass plans something or names a sequence
//    that can never be served.
// 6. Equal calls give equal plans.
// 7. Drafts take what rows and prefill leave of a step, and no sequence is preempted for them.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "common/check.h"
#include "worker/core/step_plan.h"
#include "worker/kv/kv_cache.h"
#include "worker/scheduler/fairness.h"
#include "worker/scheduler/scheduler_values.h"
#include "worker/scheduler/sequence.h"

namespace quire {

class Scheduler {
 public:
  explicit Scheduler(const SchedulerOptions& options);

  // Whether `length` tokens could ever be held, with nothing else in the pool.
  bool CanEverFit(int64_t length) const;

  void Enqueue(Sequence& sequence);
  // The same for a choice of a request whose prompt `leader`, just enqueued, computes: the choice
  // waits for that and then shares the prompt's blocks. When the leader leaves before, another
  // takes its place.
  void EnqueueBehind(Sequence& sequence, Sequence& leader);
  // The same for a sequence that continues `parent`: all its tokens but the last are the parent's.
  // It shares the parent's blocks if these are computed, and otherwise computes its tokens again.
  void EnqueueFork(Sequence& sequence, const Sequence& parent);
  // It computes nothing more before a Grant, and keeps its blocks until others need them. Requires:
  // no step in flight names it.
  void Hold(Sequence& sequence);
  // The sequence has ended; steps in flight may still name it.
  void Remove(Sequence& sequence);
  // Outputs with an index below `up_to` may be produced. Windows only grow.
  void Grant(Sequence& sequence, int64_t up_to);

  // Fills `plan` and, in the order of plan.rows, `rows`. False: there is nothing to launch now.
  // When unfit() then names a sequence, it must be removed before the next call.
  bool Plan(StepPlan& plan, std::vector<PlannedRow>& rows, const StepBudget& budget = {});
  // The contents of the last plan.
  const StepWork& work() const { return work_; }
  // A sequence that can never be served: its tokens do not fit in the pool. Null: none.
  Sequence* unfit() const { return unfit_; }

  // Call before the rows of a step are committed, for speed alone.
  void PrepareCommit(std::span<const PlannedRow> rows);
  // Commits one row of the oldest step in flight; `token` is −1 when it sampled none. False: the
  // sequence has ended in the meantime and the token is dropped.
  bool CommitRow(const PlannedRow& row, TokenId token);
  // The same for a row that decodes and continues with its blocks unchanged, as nearly all do.
  // False: nothing has been done, call CommitRow. Requires: token ≥ 0.
  [[gnu::always_inline]] bool CommitDecode(const PlannedRow& row, TokenId token) {
    Sequence& sequence = *row.sequence;
    const bool goes_on = row.plain && sequence.place != SequencePlace::kNone &&
                         sequence.incarnation == row.incarnation;
    if (!goes_on) return false;
    --sequence.steps_in_flight;
    --sequence.samples_in_flight;
    ++sequence.computed;
    sequence.tokens.push_back(token);
    QUIRE_CHECK(sequence.samples_in_flight >= 0 && sequence.computed <= sequence.planned);
    return true;
  }
  // Before CommitRow: the drafts that have become tokens.
  void CommitDrafts(const PlannedRow& row, std::span<const TokenId> accepted);
  // After its rows: frees what only this plan and older ones named.
  void CommitStep(uint64_t number, std::span<const PlannedRow> rows);

  SchedulerLoad Load() const;
  const SchedulerTotals& totals() const { return totals_; }
  size_t waiting_count() const { return waiting_count_; }
  std::span<Sequence* const> running() const { return running_; }
  bool Idle() const { return waiting_count_ == 0 && running_.empty(); }
  bool StepsInFlight() const { return committed_ < launched_; }
  const KvCache& kv() const { return kv_; }
  const FairShare& shares() const { return shares_; }
  KvCache& cache() { return kv_; }  // its events and what snapshots read

  void CheckInvariants() const;

 private:
  // scheduler.cc, scheduler_drafts.cc: the pass
  void PauseStalled();
  void Pause(Sequence& sequence);
  void PlanDecodes();
  void PlanResumes();
  void PlanPrefills();
  Sequence* NextForPrefill() const;
  bool GoesBefore(const Sequence& a, const Sequence& b) const;
  bool ContinuePrefill(Sequence& sequence);
  int64_t ChunkLimit(const Sequence& sequence, int64_t planned) const;
  void PlanDrafts();
  int64_t DraftLimit(const Sequence& sequence, const StepRow& row, int64_t tokens) const;
  void AddDrafts(size_t index, int32_t count);
  void PauseBehindDrafts(Sequence& sequence);

  // scheduler_lists.cc: the list that each sequence is in
  void Join(Sequence& sequence);
  void Insert(Sequence& sequence, SequencePlace place);
  void Take(Sequence& sequence);
  void SyncRoom(Sequence& sequence);

  // scheduler_forks.cc: choices that share a prompt
  void ForkFollowers(Sequence& leader);
  bool HeldForForks(const Sequence& leader) const;
  void Share(Sequence& sequence, const Sequence& from, int64_t length);
  void ReplaceLeader(Sequence& leader);
  void TakeOwnBlocks(Sequence& sequence);

  // scheduler_room.cc: pages, and preemption
  void GiveShares();
  Sequence* FairVictim(const Sequence& head, bool for_row) const;
  void MakeRoomForDecodes();
  bool Admit(Sequence& sequence);
  int64_t PagesToAdmit(const Sequence& head, const CacheHit& hit) const;
  int64_t LargestChunk() const;
  int64_t AffordableChunk(const Sequence& sequence) const;
  int64_t BudgetTaken(const Sequence& sequence, int64_t chunk) const;
  bool MakeRoomForPrefill(Sequence& sequence);
  CacheHit LookUp(Sequence& head);
  bool SoonCached(const Sequence& head, const CacheHit& hit) const;
  void TakeHit(Sequence& head, const CacheHit& hit);
  bool ReclaimForAdmission(Sequence& head, CacheHit& hit);
  int64_t Reclaimable(const Sequence& head) const;
  Sequence* PickVictim(bool with_rows, const Sequence* spared) const;
  void Preempt(Sequence& victim);
  bool Extend(Sequence& sequence, int64_t length);
  int64_t PagesFor(const Sequence* sequence) const;
  int64_t PagesToOwn(const Sequence& sequence) const;
  int64_t PagesHeldBy(const Sequence& sequence) const;  // those shared with others included
  int64_t LeavingPages() const;

  // scheduler_rows.cc: what the runner receives, and what a step's end frees
  void GiveBirth(Sequence& sequence);
  void ScheduleRow(Sequence& sequence, int32_t q_len);
  void ScheduleDecode(Sequence& sequence);
  void FindPlainEnd(Sequence& sequence);
  void Book(Sequence& sequence, int32_t q_len);
  void TellBlocks(Sequence& sequence);
  void SettleBlocks(Sequence& sequence);
  void ReleaseRow(Sequence& sequence);
  void ReleaseBlocks(Sequence& sequence);

  SchedulerOptions options_;
  KvCache kv_;
  FairShare shares_;                   // with the waiting of each tenant
  std::vector<Sequence*> resuming_;    // waiting with their blocks; sorted by RunsBefore
  std::vector<Sequence*> following_;   // sorted by RunsBefore
  std::vector<Sequence*> running_;     // in no order
  std::vector<Sequence*> prefilling_;  // of these, those that prefill; in no order
  std::vector<Sequence*> paused_;      // in no order
  std::vector<Sequence*> protected_;   // running with reserved pages
  size_t waiting_count_ = 0;           // without those that follow
  std::vector<int32_t> free_rows_, retiring_rows_;  // the latter: sent with the next plan
  std::vector<LeavingBlocks> leaving_;
  std::vector<const PlannedRow*> settling_;   // of the step that will be committed next
  int64_t block_pages_ = 0;                   // pages of one block in every kind
  bool windowed_ = false, stateful_ = false;  // some kind has a window, or holds states
  uint64_t launched_ = 0, committed_ = 0;     // numbers of the last plans
  SchedulerTotals totals_;

  // Of the current pass.
  StepPlan* plan_ = nullptr;
  std::vector<PlannedRow>* rows_ = nullptr;
  uint64_t pass_ = 0;
  StepBudget budget_;
  StepWork work_;
  int64_t prefill_budget_ = 0;
  bool admitting_ = false;              // the first waiting one has not been held up yet
  const Sequence* claimant_ = nullptr;  // the last free row was taken from another sequence for it
  Sequence* unfit_ = nullptr;
};

}  // namespace quire
