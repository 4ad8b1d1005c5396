// The engine's state between two calls. engine.cc holds the round, engine_commands.cc the commands.
//
// Owner: Engine, on its thread. Invariants: those of its parts, see Engine::CheckInvariants.
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "worker/adapters/adapter_slots.h"
#include "worker/draft/drafter.h"
#include "worker/engine/cache_reports.h"
#include "worker/engine/engine.h"
#include "worker/engine/output_builder.h"
#include "worker/engine/request_table.h"
#include "worker/scheduler/scheduler.h"
#include "worker/scheduler/step_cost.h"
#include "worker/scheduler/step_time.h"

namespace quire {

// How often the engine checks whether a lost device is back.
inline constexpr int64_t kDeviceLookInterval = 20'000;

struct Engine::State {
  // A launched step: which rows it holds, so that its result can be committed.
  struct Launched {
    uint64_t number = 0;
    std::vector<PlannedRow> rows;
    int64_t tokens = 0;
    StepWork work;
    int64_t launched_us = 0;
    int64_t predicted_us = 0;
    bool probe = false;        // the idle probe alone
    bool drafted = false;      // some of its rows have drafts
    bool constrained = false;  // the next step waits: the grammars of its rows need its samples
  };

  State(const EngineOptions& engine_options, Runner& step_runner, StepProgress& step_progress);

  // --- commands
  void On(SubmitCommand command, int64_t now_us);
  void On(GrammarCommand command, int64_t now_us);
  void On(const CancelCommand& command, int64_t now_us);
  void On(const FinishCommand& command, int64_t now_us);
  void On(const GrantCommand& command, int64_t now_us);
  void On(const RouterLostCommand& command, int64_t now_us);
  void On(const WatchCommand& command, int64_t now_us);
  void On(const SnapshotCommand& command, int64_t now_us);
  void On(const SnapshotSentCommand& command, int64_t now_us);
  void On(const DrainCommand& command, int64_t now_us);
  void On(AdapterCommand command, int64_t now_us);
  std::optional<Refused> RefusalOf(const SubmitCommand& command, int64_t now_us);
  void Accept(SubmitCommand command);
  void AddChoice(Request& request, uint32_t index);
  void CountAttempt(Request& request);
  void Enter(Request& request);

  // --- the round
  void ReserveStep();
  void Expire(int64_t now_us);
  void ProbeWhenIdle(int64_t now_us);
  void LaunchSteps(int64_t now_us);
  bool PlanStep(Launched& step);
  void EndUnfit();
  bool CommitReady(int64_t now_us);
  // What a step sampled and scored, less what the rows before the next one have taken.
  struct StepOutcome {
    std::span<const SampledToken> samples;
    std::span<const ScoredToken> scores;
  };
  void CommitRows(const Launched& step, int64_t now_us);
  bool CommitPlainRow(const PlannedRow& row, StepOutcome& left);
  void CommitRow(const PlannedRow& row, int64_t launched_us, StepOutcome& left, int64_t now_us);
  void NoteChunk(Choice& choice, const PlannedRow& row, int64_t launched_us);
  bool CommitScores(Choice& choice, std::span<const ScoredToken> scored);
  void CommitSample(Choice& choice, const SampledToken& sample, int64_t count, int64_t now_us);
  void TellToken(Choice& choice, const SampledToken& sample, int64_t count, int64_t now_us);
  void Report(int64_t now_us, EngineOutput& output);
  void ReportCache(EngineOutput& output);
  void PublishAdapters();

  // --- speculation (engine_drafts.cc)
  bool Drafts() const;  // rows may have drafts
  bool LearnsDrafts() const;
  void ProposeDrafts();
  bool ProposeForced(Choice& choice, DraftStep& step, double micros);
  bool ProbePays(const Choice& choice, const DraftStep& step, double micros) const;
  void CommitDrafted(Choice& choice, const PlannedRow& row, std::span<const SampledToken> samples,
                     int64_t now_us);
  size_t SamplesToTake(const Choice& choice, std::span<const TokenId> drafts,
                       std::span<const SampledToken> samples) const;
  void NoteDrafts(Choice& choice, size_t drafted, size_t accepted);

  // --- constraints (engine_constraints.cc)
  void RefuseLate(Request& request, Refused refused);
  bool BeginTexts(const Launched& step);
  void JudgeText(Choice& choice);
  void EndText(Choice& choice);
  void EndTextOf(Choice& choice);
  std::string NoTokenMessage(const Choice& choice) const;

  // --- beam search
  void StartBeams(Request& request);
  void CommitBeam(Choice& beam, const SampledToken& sample);
  void EndRound(Request& request);
  void TellAnswers(Request& request);
  void StopBeams(Request& request);

  // --- ends
  void EndChoice(Choice& choice, const ChoiceOutcome& end);
  void EndRequest(Request& request, const ChoiceOutcome& end);

  // --- the device (engine_device.cc)
  void LoseDevice(int64_t now_us);
  void DropStep(Launched& step);
  void TakeOver(const State& old);

  int64_t NextWakeup(int64_t now_us) const;
  quire::Load MakeLoad() const;

  EngineOptions options;
  Runner& runner;
  StepProgress& progress;
  Scheduler scheduler;
  StepCost cost;            // a high estimate: for stuck steps
  StepTimeModel step_time;  // a mean estimate: for how much prefill fits into a step
  Slab<Choice> choices;
  RequestTable requests;  // their choices are in the slab
  OutputBuilder out;
  CacheReports cache_reports;
  AdapterSlots adapter_slots;
  std::vector<AdapterPlaced> adapters_placed;  // not reported yet
  EngineTotals totals;

  std::vector<Launched> in_flight;
  std::vector<std::vector<PlannedRow>> spare_rows;  // reused
  StepPlan plan;                                    // reused
  std::vector<std::byte> packet;                    // reused
  StepResult result;                                // reused

  std::vector<DraftRow> draft_rows;  // reused
  std::vector<Choice*> drafting;     // the same rows' choices
  size_t masked_drafts = 0;          // of constrained rows, in the next step
  DraftStart draft_start;
  int64_t draft_steps = 0;  // steps with drafts that step_time knows of

  Choice probe;
  SamplingParams probe_sampling;
  int64_t next_probe_us = 0;  // the first one is the canary of start-up

  size_t constrained_choices = 0;  // that have not ended
  size_t waiting_requests = 0;     // accepted; no choice of theirs has been in a batch
  uint64_t next_sequence = 1;
  uint64_t next_arrival = 1;
  int64_t record_us = 0;                   // the time for records: the call's, or the step's end
  int64_t next_timeout_us = kNeverMicros;  // no deadline or stall ends before this
  bool draining = false;
  int64_t drain_deadline_us = kNeverMicros;
  bool stepped = false;
  int64_t stepped_predicted_us = 0;

  bool device_there = true;  // steps may be launched
  bool device_lost = false;  // and none has been committed since
  uint64_t devices_lost = 0;
  EngineTotals before;  // counts of scheduler and cache when the last device was lost
};

}  // namespace quire
