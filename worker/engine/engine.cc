// The engine in one file: commands come in (engine_commands.cc), then RunOnce runs one round:
// expire → plan → launch → collect → commit → report (engine_report.cc). Scheduling is in
// worker/scheduler, pages in worker/kv, arithmetic behind Runner; this file shows what happens to a
// request between its Submit and its one end.
#include "worker/engine/engine.h"

#include <algorithm>
#include <utility>
#include <variant>

#include "common/check.h"
#include "common/planted_bug.h"
#include "worker/constrain/mask_pool.h"
#include "worker/engine/engine_state.h"
#include "worker/runner/step_packet.h"
#include "worker/sample/stop_rules.h"

namespace quire {
namespace {

// A step above max(2 s, 10 × predicted) is stuck; a slow step is never a failure.
constexpr int64_t kMinStepLimitMicros = 2'000'000;
constexpr int64_t kStepLimitFactor = 10;
constexpr char kNotANumber[] = "INTERNAL: the model's logits are not numbers";

SchedulerOptions MakeSchedulerOptions(const EngineOptions& options) {
  SchedulerOptions scheduler;
  scheduler.max_num_seqs = options.max_num_seqs;
  scheduler.max_num_batched_tokens = options.max_num_batched_tokens;
  scheduler.policy = options.scheduling_policy;
  scheduler.cache.block_size = options.block_size;
  scheduler.cache.page_count = options.page_count;
  scheduler.cache.kinds = options.cache_kinds;
  if (scheduler.cache.kinds.empty()) scheduler.cache.kinds.push_back({});
  scheduler.prefix_caching = options.prefix_caching;
  scheduler.tells_next = options.drafter != nullptr && options.drafter->ReadsSteps();
  scheduler.hash_mask = options.block_hash_mask;
  scheduler.on_page_freed = options.on_page_freed;
  return scheduler;
}

// Prefetches what the rows after the current one will touch.
void PrefetchRows(std::span<const PlannedRow> rows, size_t i) {
  if (i + kRowsAhead < rows.size()) {
    rows[i + kRowsAhead].sequence->Prefetch();
    static_cast<const Choice*>(rows[i + kRowsAhead].sequence)->PrefetchToken();
  }
  if (i + kTokensAhead < rows.size()) rows[i + kTokensAhead].sequence->PrefetchNextToken();
}

}  // namespace

Engine::State::State(const EngineOptions& engine_options, Runner& step_runner,
                     StepProgress& step_progress)
    : options(engine_options),
      runner(step_runner),
      progress(step_progress),
      scheduler(MakeSchedulerOptions(engine_options)),
      out(engine_options.max_num_seqs),
      cache_reports(engine_options.snapshot_slice),
      adapter_slots(engine_options.adapters) {
  QUIRE_CHECK(options.vocab_size > 0 && options.max_model_len > 1);
  QUIRE_CHECK_MSG(scheduler.CanEverFit(1), "the pool holds not even one block");
  // A tokenizer may have grown beyond its model: a token that cannot be sampled ends nothing.
  std::erase_if(options.eos_token_ids,
                [this](TokenId id) { return id < 0 || id >= options.vocab_size; });
  in_flight.reserve(static_cast<size_t>(runner.MaxInFlight()));
  ReserveStep();
  probe_sampling.temperature = 0.0f;
  probe_sampling.max_tokens = 1;
}

// Memory for the largest possible step.
void Engine::State::ReserveStep() {
  StepLimits limits;
  limits.max_rows = options.max_num_seqs;
  limits.max_tokens =
      MaxStepTokens(options.max_num_seqs, options.max_num_batched_tokens, options.block_size);
  limits.block_size = options.block_size;
  limits.groups = scheduler.kv().shape().GroupCount();
  QUIRE_CHECK(limits.max_rows > 0 && static_cast<size_t>(limits.max_rows) <= kMaxStepRows);
  const size_t rows = static_cast<size_t>(limits.max_rows);
  const size_t tokens = static_cast<size_t>(limits.max_tokens);
  plan.Reserve(rows, tokens, MaxAppends(limits));
  packet.reserve(rows * sizeof(StepRow) + tokens * sizeof(TokenId) +
                 MaxAppends(limits) * (sizeof(BlockAppend) + sizeof(BlockDrop)) + 1024);
  result.samples.reserve(rows);
  result.top_ids.reserve(rows * kMaxLogprobs);
  result.top_logprobs.reserve(rows * kMaxLogprobs);
  for (int i = 0; i < runner.MaxInFlight() + 1; ++i) spare_rows.emplace_back().reserve(rows);
  draft_rows.reserve(rows);
  drafting.reserve(rows);
  QUIRE_CHECK(options.max_drafts >= 0 && options.max_drafts <= kMaxDraftTokens);
}

Engine::Engine(const EngineOptions& options, Runner& runner, StepProgress& progress)
    : state_(std::make_unique<State>(options, runner, progress)) {}

Engine::~Engine() = default;

void Engine::Apply(EngineCommand command, int64_t now_us) {
  state_->record_us = now_us;
  std::visit([&](auto& value) { state_->On(std::move(value), now_us); }, command);
}

EngineOutput Engine::RunOnce(int64_t now_us) {
  EngineOutput output;
  RunOnce(now_us, output);
  return output;
}

void Engine::RunOnce(int64_t now_us, EngineOutput& output) {
  state_->record_us = now_us;
  if (!DeviceThere(now_us)) return state_->Report(now_us, output);
  State& state = *state_;
  state.record_us = now_us;
  state.Expire(now_us);
  // With the runner full, the oldest step has to end before another can be planned; otherwise
  // planning comes first, so that the device has its next step while this one is committed.
  const bool full = static_cast<int>(state.in_flight.size()) == state.runner.MaxInFlight();
  const bool committed = full && state.CommitReady(now_us);
  if (committed) {
    // The engine waited for a device: what has expired in the meantime is not planned.
    now_us = std::max(now_us, state.progress.last_step_end_us.load());
    state.Expire(now_us);
  }
  state.ProbeWhenIdle(now_us);
  state.LaunchSteps(now_us);
  if (!committed) state.CommitReady(now_us);
  state.Report(now_us, output);
}

// ----------------------------------------------------------------------------------------------
// ends

void Engine::State::EndChoice(Choice& choice, const ChoiceOutcome& end) {
  QUIRE_CHECK(!choice.ended && choice.request != nullptr);
  QUIRE_CHECK(end.reason != EndReason::kUnspecified);
  Request& request = *choice.request;
  // Samples that steps in flight still produce for it are dropped when they come, and counted now.
  choice.generated += choice.samples_in_flight;
  if (!QUIRE_BUG(overrun_not_booked)) choice.discarded += choice.samples_in_flight;
  ++totals.choices_ended[static_cast<size_t>(end.reason)];
  if (choice.place != SequencePlace::kNone) scheduler.Remove(choice);
  choice.ended = true;
  QUIRE_CHECK(request.open_choices > 0);
  --request.open_choices;
  if (request.open_choices == 0 && request.beams != nullptr) StopBeams(request);
  out.AddEnded(choice, end);
  if (QUIRE_BUG(end_told_twice)) out.AddEnded(choice, end);
  QUIRE_CHECK(!choice.HoldsBlocks() && choice.row < 0);
  if (options.drafter != nullptr) options.drafter->Forget(choice.id);
  if (choice.constrained) {
    --constrained_choices;
    EndTextOf(choice);
  }
  if (request.open_choices > 0) return;
  if (!request.counted) CountAttempt(request);  // its grammar was still being compiled
  out.AddRecord(request.Record(end.reason, record_us));
  if (!request.told_admitted) --waiting_requests;
  if (request.adapter_slot >= 0) adapter_slots.Touch(request.adapter_slot, record_us);
  requests.Retire(request);
}

void Engine::State::Expire(int64_t now_us) {
  if (now_us >= drain_deadline_us) {
    while (!requests.live().empty()) {
      EndRequest(*requests.live().begin()->second,
                 {.reason = EndReason::kDrained, .retryable = true});
    }
  }
  if (now_us < next_timeout_us) return;
  next_timeout_us = kNeverMicros;
  for (auto at = requests.live().begin(); at != requests.live().end();) {
    Request& request = *(at++)->second;
    if (QUIRE_BUG(deadline_ignored_in_queue) && !request.Admitted()) continue;
    if (now_us >= request.deadline_us) {
      EndRequest(request, {.reason = EndReason::kDeadline});
      continue;
    }
    next_timeout_us = std::min(next_timeout_us, request.deadline_us);
    // The last choice to end takes the request with it: nothing of it is read after that.
    const size_t choices = request.choices.size();
    for (size_t i = 0; i < choices; ++i) {
      Choice& choice = *request.choices[i];
      if (choice.ended || choice.stalled_since_us == kNeverMicros) continue;
      const int64_t end_us = choice.stalled_since_us + options.slow_client_timeout_us;
      if (now_us >= end_us) {
        EndChoice(choice, {.reason = EndReason::kSlowClient});
      } else {
        next_timeout_us = std::min(next_timeout_us, end_us);
      }
    }
  }
}

// ---------------------------------------------------------------------------------------------
// steps

// An idle worker proves every few seconds that a token can be produced: one row that no record
// counts.
void Engine::State::ProbeWhenIdle(int64_t now_us) {
  if (now_us < next_probe_us || !scheduler.Idle() || !in_flight.empty() || !device_there) return;
  if (draining && requests.Empty()) return;
  QUIRE_CHECK(probe.place == SequencePlace::kNone);
  probe = Choice();
  probe.id = next_sequence++;
  probe.priority = INT32_MAX;
  probe.off_the_books = true;
  probe.prompt_length = 1;
  probe.output_limit = 1;
  probe.sampling = &probe_sampling;
  probe.tokens = {0};
  scheduler.Enqueue(probe);
}

void Engine::State::LaunchSteps(int64_t now_us) {
  while (device_there && static_cast<int>(in_flight.size()) < runner.MaxInFlight()) {
    if (!in_flight.empty() && in_flight.back().constrained) return;
    Launched step;
    if (!spare_rows.empty()) {
      step.rows = std::move(spare_rows.back());
      spare_rows.pop_back();
    }
    if (Drafts()) ProposeDrafts();
    if (!PlanStep(step)) return spare_rows.push_back(std::move(step.rows));
    step.number = plan.number;
    step.work = scheduler.work();
    step.launched_us = now_us;
    step.probe = plan.rows.size() == 1 && step.rows[0].sequence == &probe;
    step.tokens = step.work.decode_rows + step.work.prefill_tokens;
    step.drafted = !plan.drafts.empty();
    step.predicted_us = cost.PredictMicros(step.tokens);
    for (const PlannedRow& row : step.rows) {
      if (plan.born.empty()) break;  // only a row's first step can admit a request
      Request* request = static_cast<Choice*>(row.sequence)->request;
      if (request == nullptr || request->told_admitted) continue;
      request->told_admitted = true;
      request->launched_us = now_us;
      --waiting_requests;
      out.AddAdmitted(*request, static_cast<uint32_t>(row.sequence->hit_length),
                      row.sequence->hit_event_seq);
    }
    if (constrained_choices > 0) step.constrained = BeginTexts(step);
    EncodeStepPlan(plan, packet);
    const int64_t limit_us = std::max(kMinStepLimitMicros, kStepLimitFactor * step.predicted_us);
    if (in_flight.empty()) {
      progress.running_limit_us.store(limit_us);
      progress.running_since_us.store(std::max<int64_t>(1, now_us));
    }
    runner.Launch(packet, now_us);
    in_flight.push_back(std::move(step));
    if (scheduler.unfit() != nullptr) EndUnfit();
  }
}

// A request that can never be served is ended by name, and the pass is repeated.
bool Engine::State::PlanStep(Launched& step) {
  const StepBudget budget{options.max_step_time_us, step_time.times(), LearnsDrafts() ? 1 : 0,
                          Drafts()};
  while (!scheduler.Plan(plan, step.rows, budget)) {
    if (scheduler.unfit() == nullptr) return false;
    EndUnfit();
  }
  return true;
}

void Engine::State::EndUnfit() {
  Choice& choice = static_cast<Choice&>(*scheduler.unfit());
  QUIRE_CHECK_MSG(choice.request != nullptr, "the pool has no room for the idle probe");
  EndRequest(*choice.request, {.reason = EndReason::kFailed,
                               .message = "TOO_LARGE: its tokens can never fit in the cache",
                               .cause = FailureCause::kTooLarge});
  QUIRE_CHECK(scheduler.unfit() == nullptr);
}

// Commits the oldest step in flight if its result is there (on a real device: waits for it).
bool Engine::State::CommitReady(int64_t now_us) {
  if (in_flight.empty() || runner.ReadyAt() > now_us) return false;
  runner.Collect(result);
  if (runner.Lost()) {
    LoseDevice(now_us);
    return true;
  }
  Launched step = std::move(in_flight.front());
  in_flight.erase(in_flight.begin());  // there are one or two
  QUIRE_CHECK_MSG(result.number == step.number, "a step's result is another's");

  const int64_t end_us = std::max(now_us, step.launched_us + result.elapsed_us);
  record_us = end_us;
  CommitRows(step, now_us);
  scheduler.CommitStep(step.number, step.rows);

  cost.Observe(step.tokens, end_us - step.launched_us);
  step_time.Observe(step.work, result.elapsed_us);
  draft_steps += step.drafted;
  progress.last_step_end_us.store(std::max<int64_t>(1, end_us));
  progress.running_since_us.store(in_flight.empty() ? 0 : std::max<int64_t>(1, end_us));
  next_probe_us = end_us + options.idle_probe_interval_us;
  spare_rows.push_back(std::move(step.rows));
  totals.probes += step.probe;
  device_lost = false;
  progress.device_lost.store(false);
  if (step.probe) return true;
  progress.steps_total.store(++totals.steps);
  stepped = true;
  stepped_predicted_us = step.predicted_us;
  if (options.metrics != nullptr) {
    options.metrics->Step({step.tokens, step.work.prefill_tokens, result.elapsed_us});
  }
  return true;
}

// The rows of a step in its order, each with what it sampled and scored.
void Engine::State::CommitRows(const Launched& step, int64_t now_us) {
  const std::span<const PlannedRow> rows(step.rows);
  StepOutcome left{result.samples, result.scores};
  scheduler.PrepareCommit(rows);
  for (size_t i = 0; i < rows.size(); ++i) {
    PrefetchRows(rows, i);
    if (rows[i].plain && CommitPlainRow(rows[i], left)) continue;
    CommitRow(rows[i], step.launched_us, left, now_us);
  }
  QUIRE_CHECK(left.scores.empty() && left.samples.empty());
  if (step.constrained) options.masks->EndStep(options.drafter != nullptr);
}

// Nearly every row of nearly every step: a token that ends nothing and uses nothing up. False: the
// row needs CommitRow, and nothing has been done.
[[gnu::always_inline]] inline bool Engine::State::CommitPlainRow(const PlannedRow& row,
                                                                 StepOutcome& left) {
  QUIRE_CHECK(!left.samples.empty());
  const SampledToken& sample = left.samples.front();
  Choice& choice = static_cast<Choice&>(*row.sequence);
  QUIRE_CHECK_MSG(sample.sequence == choice.id, "a sample belongs to another row");
  const int64_t count = choice.OutputCount() + 1;
  if (choice.constrained || sample.token < 0 || count >= choice.window_end ||
      MayStop(choice.end_filter, sample.token, count, choice.output_limit) ||
      !scheduler.CommitDecode(row, sample.token)) {
    return false;
  }
  left.samples = left.samples.subspan(1);
  ++totals.generated_tokens;
  ++choice.generated;
  if (!out.AddPlainToken(choice, sample.token, count)) {
    out.AddToken(choice, sample, count, result.Top(sample.top));
  }
  return true;
}

void Engine::State::CommitRow(const PlannedRow& row, int64_t launched_us, StepOutcome& left,
                              int64_t now_us) {
  Choice& choice = static_cast<Choice&>(*row.sequence);
  const SampledToken* sample = nullptr;
  if (row.sample) {
    QUIRE_CHECK(!left.samples.empty());
    sample = left.samples.data();
    left.samples = left.samples.subspan(1 + static_cast<size_t>(row.draft_count));
    QUIRE_CHECK_MSG(sample->sequence == choice.id, "a sample belongs to another row");
    if (choice.constrained) JudgeText(choice);
  }
  if (row.plain && sample->token >= 0 && scheduler.CommitDecode(row, sample->token)) {
    ++totals.generated_tokens;
    ++choice.generated;
    return TellToken(choice, *sample, choice.OutputCount(), now_us);
  }
  if (row.draft_count > 0) {
    return CommitDrafted(choice, row, {sample, 1 + static_cast<size_t>(row.draft_count)}, now_us);
  }
  NoteChunk(choice, row, launched_us);
  const std::span<const ScoredToken> scored =
      left.scores.first(static_cast<size_t>(row.score_count));
  left.scores = left.scores.subspan(scored.size());
  // A sequence that ended while the step ran takes nothing: its overrun was counted at its end.
  const bool taken = scheduler.CommitRow(row, sample == nullptr ? -1 : sample->token);
  if (!taken) {
    totals.generated_tokens += row.sample;
    totals.discarded_tokens += row.sample;
  }
  // Scores belong to the request, even when the choice that computed them has ended.
  if (!CommitScores(choice, scored) || !taken) return;
  if (sample != nullptr) CommitSample(choice, *sample, choice.OutputCount(), now_us);
}

// Decode rows are not part of it: they compute one token, which samples, after the first output.
void Engine::State::NoteChunk(Choice& choice, const PlannedRow& row, int64_t launched_us) {
  const bool one_token = row.q_len == 1 && row.sample;
  if (one_token && choice.generated > 0) return;  // the request need not be read
  Request* const request = choice.request;
  if (request == nullptr || (one_token && request->first_token_us != kNeverMicros)) return;
  QUIRE_CHECK(row.q_len > 0 && launched_us <= record_us);
  request->prefill.Add(launched_us, record_us, static_cast<uint32_t>(row.q_len));
}

// False: the logits were not numbers, and the request has failed.
bool Engine::State::CommitScores(Choice& choice, std::span<const ScoredToken> scored) {
  if (scored.empty() || choice.request->open_choices == 0) return true;
  QUIRE_CHECK(choice.wants_prompt_logprobs);
  for (const ScoredToken& score : scored) {
    if (!score.not_a_number) continue;
    EndRequest(
        *choice.request,
        {.reason = EndReason::kFailed, .message = kNotANumber, .cause = FailureCause::kNotANumber});
    return false;
  }
  out.AddPromptLogprobs(*choice.request, scored, result);
  return true;
}

// `count`: the choice's outputs with this one.
void Engine::State::CommitSample(Choice& choice, const SampledToken& sample, int64_t count,
                                 int64_t now_us) {
  if (choice.request == nullptr)
    return scheduler.Remove(choice);  // the idle probe has done its work
  if (sample.token < 0) {
    const std::string why = sample.not_a_number ? kNotANumber : NoTokenMessage(choice);
    const FailureCause cause =
        sample.not_a_number ? FailureCause::kNotANumber : FailureCause::kNoTokenAllowed;
    return EndRequest(*choice.request,
                      {.reason = EndReason::kFailed, .message = why, .cause = cause});
  }
  if (choice.is_beam) return CommitBeam(choice, sample);
  ++totals.generated_tokens;
  if (++choice.generated == 1) {
    choice.request->first_token_us = std::min(choice.request->first_token_us, record_us);
    if (choice.sampling->max_tokens == 0) {  // only the prompt was requested
      ++choice.discarded;
      ++totals.discarded_tokens;
      return EndChoice(choice, {.reason = EndReason::kLength});
    }
  }
  TellToken(choice, sample, count, now_us);
}

// A token that counts: its router gets it, and it may be the choice's last one.
void Engine::State::TellToken(Choice& choice, const SampledToken& sample, int64_t count,
                              int64_t now_us) {
  if (!out.AddPlainToken(choice, sample.token, count)) {
    out.AddToken(choice, sample, count, result.Top(sample.top));
    choice.accepted_prediction = choice.rejected_prediction = 0;
  }
  if (MayStop(choice.end_filter, sample.token, count, choice.output_limit)) {
    const StopRules rules{choice.end_ids, choice.min_tokens, choice.output_limit};
    if (const auto stop = CheckStop(rules, sample.token, count)) {
      return EndChoice(choice, {.reason = stop->reason,
                                .by_stop_token = stop->by_stop_token,
                                .stop_token_id = stop->stop_token_id});
    }
  }
  if (choice.constrained) options.masks->Accept(choice.id, sample.token);
  if (count < choice.window_end) return;
  choice.stalled_since_us = now_us;
  ++totals.windows_used_up;
  next_timeout_us = std::min(next_timeout_us, now_us + options.slow_client_timeout_us);
}

void Engine::ObservePass(int64_t pass_us) {
  const State& state = *state_;
  QUIRE_CHECK(pass_us >= 0);
  if (state.options.metrics == nullptr) return;
  state.options.metrics->Host(std::max<int64_t>(0, pass_us - state.result.elapsed_us));
}

const EngineTotals& Engine::totals() const { return state_->totals; }
const KvCache& Engine::kv() const { return state_->scheduler.kv(); }

void Engine::CheckInvariants() const {
  const State& state = *state_;
  state.scheduler.CheckInvariants();
  state.requests.CheckInvariants();
  QUIRE_CHECK(static_cast<int>(state.in_flight.size()) <= state.runner.MaxInFlight());
  QUIRE_CHECK(state.waiting_requests <= static_cast<size_t>(state.options.max_waiting_requests));
  QUIRE_CHECK(state.scheduler.StepsInFlight() == !state.in_flight.empty());
  QUIRE_CHECK((state.progress.running_since_us.load() != 0) == !state.in_flight.empty());
  for (const auto& [key, request] : state.requests.live()) {
    if (request->adapter_slot < 0) continue;
    QUIRE_CHECK_MSG(state.adapter_slots.In(request->adapter_slot) == request->submit.adapter,
                    "a slot keeps its adapter as long as a request uses it");
  }
}

}  // namespace quire
