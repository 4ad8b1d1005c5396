// Decides what the next step computes: decode rows first, then prefill chunks, then new rows, and
// who has to give way when pages run out.
//
// Owner: Engine, on its thread. Pure: no clock, no I/O, no threads, no randomness. Sequences belong
// to the caller and outlive their stay in the scheduler and every step in flight that names them.
//
// Order is (priority, arrival, choice) throughout. Preemption is by recompute; the victim is one
// without a row that holds blocks (paused ones) if there is any, else the one with the least to
// recompute.
//
// Invariants:
// 1. Every decoding row is in every plan unless it waits for pages that a step in flight gives
// back.
// 2. A step with prefill work computes at least one block of it (or all of it), whatever decodes
// take.
// 3. The first of the waiting is never passed by another: no starvation.
// 4. Blocks and rows are given back when the last plan that names them has been committed.
// 5. With work that is not paused and nothing in flight, a plan is not empty.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "worker/core/step_plan.h"
#include "worker/kv/kv_cache.h"
#include "worker/scheduler/sequence.h"

namespace quire {

struct SchedulerOptions {
  int32_t max_num_seqs = 64;  // rows in a step
  int32_t max_num_batched_tokens = 2048;
  CacheShape cache;
  std::function<void(int32_t)> on_page_freed;  // may be empty
};

// The largest number of tokens that a step holds: the token budget, or more where decode rows and
// one block of prefill need it.
int32_t MaxStepTokens(int32_t max_num_seqs, int32_t max_num_batched_tokens, int32_t block_size);

// One row of a plan, as its commit needs it.
struct PlannedRow {
  Sequence* sequence = nullptr;
  uint32_t incarnation = 0;
  int32_t q_len = 0;
  bool sample = false;
};

struct SchedulerLoad {
  uint32_t running_rows = 0;
  uint32_t waiting = 0;
  uint64_t waiting_prefill_tokens = 0;
  uint64_t running_prefill_tokens = 0;
};

// Work planned since the start; a planned step is always computed.
struct SchedulerTotals {
  uint64_t computed_tokens = 0;
  uint64_t recomputed_tokens = 0;
  uint64_t preemptions = 0;
};

class Scheduler {
 public:
  explicit Scheduler(const SchedulerOptions& options);

  // Whether `length` tokens could ever be held, with nothing else in the pool.
  bool CanEverFit(int64_t length) const;

  void Enqueue(Sequence& sequence);
  // The same for a choice of a request whose prompt `leader`, just enqueued, computes: it waits for
  // that and then shares the prompt's blocks. When the leader leaves before, another takes its
  // part.
  void EnqueueBehind(Sequence& sequence, Sequence& leader);
  // The sequence has ended; steps in flight may still name it.
  void Remove(Sequence& sequence);
  // Outputs with an index below `up_to` may be produced. Windows only grow.
  void Grant(Sequence& sequence, int64_t up_to);

  // Fills `plan` and, in the order of plan.rows, `rows`. False: there is nothing to launch now.
  bool Plan(StepPlan& plan, std::vector<PlannedRow>& rows);

  // Commits one row of the oldest step in flight; `token` is −1 when it sampled none. False: the
  // sequence has ended in the meantime and the token is dropped.
  bool CommitRow(const PlannedRow& row, TokenId token);
  // After its rows: gives back what only this and older plans named.
  void CommitStep(uint64_t number, std::span<const PlannedRow> rows);

  SchedulerLoad Load() const;
  const SchedulerTotals& totals() const { return totals_; }
  size_t waiting_count() const { return waiting_.size(); }
  bool Idle() const { return waiting_.empty() && running_.empty(); }
  bool StepsInFlight() const { return committed_ < launched_; }
  const KvCache& kv() const { return kv_; }

  void CheckInvariants() const;

 private:
  // Blocks that steps in flight still name, of a sequence that left or that copied them.
  struct Leaving {
    uint64_t last_plan = 0;
    int64_t pages = 0;
    SequenceBlocks blocks;
  };

  void PauseStalled();
  void MakeRoomForDecodes();
  void PlanDecodes();
  void PlanPrefills();
  void PlanAdmissions();
  bool Admit(Sequence& sequence);

  void ForkFollowers(Sequence& leader);
  void Share(Sequence& sequence, const Sequence& from, int64_t length);
  void ReplaceLeader(Sequence& leader);
  void TakeOwnBlocks(Sequence& sequence);

  bool WantsDecode(const Sequence& sequence) const;
  int64_t LargestChunk() const;
  int64_t AffordableChunk(const Sequence& sequence) const;
  bool MakeRoomForPrefill(Sequence& sequence);
  int64_t PagesToAdmit(const Sequence& head) const;
  int64_t PagesToOwn(const Sequence& sequence) const;
  bool ReclaimForAdmission(const Sequence& head);
  Sequence* PickVictim(bool with_rows, const Sequence* spared) const;
  void Preempt(Sequence& victim);

  void GiveBirth(Sequence& sequence);
  void ScheduleRow(Sequence& sequence, int32_t q_len);
  void TellBlocks(Sequence& sequence);
  void ReleaseRow(Sequence& sequence);
  void ReleaseBlocks(Sequence& sequence);
  void Insert(std::vector<Sequence*>& list, Sequence& sequence, SequencePlace place);
  void Take(Sequence& sequence);
  int64_t PagesHeldBy(const Sequence& sequence) const;  // those shared with others included
  int64_t LeavingPages() const;

  SchedulerOptions options_;
  KvCache kv_;
  std::vector<Sequence*> waiting_;
  std::vector<Sequence*> running_;
  std::vector<Sequence*> paused_;
  std::vector<Sequence*> following_;
  std::vector<int32_t> free_rows_;
  std::vector<int32_t> retiring_rows_;  // told to the runner by the next plan
  std::vector<Leaving> leaving_;
  uint64_t launched_ = 0;  // number of the last plan
  uint64_t committed_ = 0;
  SchedulerTotals totals_;

  // Of the pass that is being made.
  StepPlan* plan_ = nullptr;
  std::vector<PlannedRow>* rows_ = nullptr;
  int64_t prefill_budget_ = 0;
  std::vector<Sequence*> scan_;
};

}  // namespace quire
