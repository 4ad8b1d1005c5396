// Beam search in the engine: rounds of forks until the search is over, then all answers at once.
#include <algorithm>
#include <utility>

#include "common/check.h"
#include "worker/engine/beams.h"
#include "worker/engine/engine_state.h"
#include "worker/sample/stop_rules.h"

namespace quire {
namespace {

// One of this attempt's answers: those that ended elsewhere were never set up.
const Choice& OneAnswer(const Request& request) {
  const auto found = std::find_if(request.choices.begin(), request.choices.end(),
                                  [](const auto& choice) { return choice->prompt_length > 0; });
  QUIRE_CHECK_MSG(found != request.choices.end(), "a search without an open answer");
  return **found;
}

// A beam may sample one more token: then it waits for the others.
void InitBeam(Choice& beam, Request& request, uint32_t index, uint64_t id) {
  const Choice& answer = OneAnswer(request);
  beam.request = &request;
  beam.is_beam = true;
  beam.adapter_slot = request.adapter_slot;
  beam.index = index;
  beam.choice = index;
  beam.id = id;
  beam.arrival = answer.arrival;
  beam.priority = answer.priority;
  beam.prompt_length = answer.prompt_length;
  beam.tenant = answer.tenant;
  beam.output_limit = answer.output_limit;
  beam.sampling = &request.beams->sampling;
}

void AddWork(const Choice& beam, Beams& beams) {
  beams.usage.computed_tokens += static_cast<uint32_t>(beam.computed_total);
  beams.usage.recomputed_tokens += static_cast<uint32_t>(beam.recomputed_total);
  beams.usage.cached_tokens += static_cast<uint32_t>(beam.cached_total);
  beams.preemptions += beam.incarnation;
}

}  // namespace

std::optional<BeamProblem> CheckBeams(const SamplingParams& params, size_t choices,
                                      size_t end_ids) {
  const auto together = [](std::string_view field) {
    return BeamProblem{field, "cannot be used together with a beam search"};
  };
  if (choices > static_cast<size_t>(params.beam_width)) {
    return BeamProblem{"n", "a beam search has at most as many answers as beams"};
  }
  if (end_ids + static_cast<size_t>(params.beam_width) > kMaxLogprobs) {
    return BeamProblem{"stop_token_ids",
                       "beams and tokens that end them must be at most 20 together"};
  }
  if (params.max_tokens < 1) return BeamProblem{"max_tokens", "a beam search needs at least one"};
  if (params.repetition_penalty != 1.0f) return together("repetition_penalty");
  if (params.frequency_penalty != 0.0f) return together("frequency_penalty");
  if (params.presence_penalty != 0.0f) return together("presence_penalty");
  if (!params.logit_bias.empty()) return together("logit_bias");
  if (!params.allowed_token_ids.empty()) return together("allowed_token_ids");
  if (!params.bad_words.empty()) return together("bad_words");
  if (params.prompt_logprobs > 0) return together("prompt_logprobs");
  return std::nullopt;
}

// Every attempt searches from the prompt: the search depends on nothing else, and tokens that the
// router already has are not sent again.
void Engine::State::StartBeams(Request& request) {
  const Submit& submit = request.submit;
  BeamSearchOptions search;
  search.width = submit.sampling.beam_width;
  search.length_penalty = submit.sampling.length_penalty;
  search.early_stopping = submit.sampling.early_stopping;
  search.min_outputs = submit.sampling.min_tokens;
  search.max_outputs = OutputLimit(submit.sampling, request.prompt_tokens, options.max_model_len);
  search.end_ids = EndIds(submit.sampling, options.eos_token_ids);
  const int32_t candidates = std::min(BeamCandidates(search), options.vocab_size);
  request.beams = std::make_unique<Beams>(std::move(search));
  Beams& beams = *request.beams;
  beams.sampling.temperature = 0.0f;
  beams.sampling.seed = submit.sampling.seed;
  beams.sampling.logprobs = 1 + std::max(candidates, submit.sampling.logprobs - 1);
  auto first = choices.Make();
  InitBeam(*first, request, 0, next_sequence++);
  const Choice& answer = OneAnswer(request);
  first->cache = answer.cache;  // the prompt alone; beams share by forks
  first->tokens.assign(answer.tokens.begin(), answer.tokens.begin() + answer.prompt_length);
  first->window_end = 1;
  beams.results.resize(1);
  beams.results_missing = 1;
  scheduler.Enqueue(*first);
  beams.rows.push_back(std::move(first));
}

void Engine::State::CommitBeam(Choice& beam, const SampledToken& sample) {
  Request& request = *beam.request;
  Beams& beams = *request.beams;
  BeamRow& result = beams.results[beam.index];
  QUIRE_CHECK_MSG(result.ids.empty(), "a beam samples once in a round");
  scheduler.Hold(beam);
  request.first_token_us = std::min(request.first_token_us, record_us);
  const TopTokens top = this->result.Top(sample.top);
  result.ids.assign(top.ids.begin(), top.ids.end());
  result.logprobs.assign(top.logprobs.begin(), top.logprobs.end());
  QUIRE_CHECK(beams.results_missing > 0);
  if (--beams.results_missing == 0) EndRound(request);
}

void Engine::State::EndRound(Request& request) {
  Beams& beams = *request.beams;
  const int64_t before = beams.search.tokens();
  const std::vector<BeamStep> next = beams.search.Step(beams.results);
  const int64_t added = beams.search.tokens() - before;
  beams.usage.generated_tokens += static_cast<uint32_t>(added);
  totals.generated_tokens += static_cast<uint64_t>(added);
  if (next.empty()) return TellAnswers(request);
  std::vector<OwnedChoice> rows;
  for (const BeamStep& step : next) {
    const Choice& parent = *beams.rows[step.parent];
    Choice& beam = *rows.emplace_back(choices.Make());
    InitBeam(beam, request, static_cast<uint32_t>(rows.size() - 1), next_sequence++);
    // The parent's sample is not the search's choice.
    beam.tokens.reserve(parent.tokens.size());
    beam.tokens.assign(parent.tokens.begin(), parent.tokens.end() - 1);
    beam.tokens.push_back(step.token);
    beam.window_end = beam.OutputCount() + 1;
    scheduler.EnqueueFork(beam, parent);
  }
  for (const OwnedChoice& parent : beams.rows) {
    QUIRE_CHECK(parent->steps_in_flight == 0);
    scheduler.Remove(*parent);
    AddWork(*parent, beams);
  }
  beams.last_rows = std::exchange(beams.rows, std::move(rows));
  beams.results.assign(beams.rows.size(), {});
  beams.results_missing = beams.rows.size();
}

void Engine::State::TellAnswers(Request& request) {
  Beams& beams = *request.beams;
  std::vector<BeamAnswer> answers;
  for (const OwnedChoice& choice : request.choices) {
    const size_t index = answers.size();
    const bool there = index < beams.search.answer_count();
    answers.push_back(there ? beams.search.Answer(index) : BeamAnswer());
    if (choice->ended) continue;
    const int64_t known = choice->OutputCount();
    const int64_t length = static_cast<int64_t>(answers.back().outputs.size());
    if (!there || length < known) {
      return EndRequest(request, {.reason = EndReason::kFailed,
                                  .message = "INTERNAL: the search found too few answers",
                                  .cause = FailureCause::kNoAnswer});
    }
    beams.told_tokens += length - known;
    out.AddAnswer(*choice, answers.back());
    const std::vector<TokenId>& outputs = answers.back().outputs;
    choice->tokens.insert(choice->tokens.end(), outputs.begin() + known, outputs.end());
  }
  // The last choice to end takes the request with it: nothing of it is read after that.
  for (size_t i = 0, count = answers.size(); i < count; ++i) {
    Choice& choice = *request.choices[i];
    if (choice.ended) continue;
    ChoiceOutcome end{.reason = answers[i].by_end ? EndReason::kStop : EndReason::kLength};
    end.by_stop_token = answers[i].by_end;
    end.stop_token_id = answers[i].by_end ? answers[i].outputs.back() : 0;
    EndChoice(choice, end);
  }
}

// Frees the beams' resources and closes their counts: tokens that are in no answer are discarded.
void Engine::State::StopBeams(Request& request) {
  Beams& beams = *request.beams;
  QUIRE_CHECK(!beams.stopped);
  beams.stopped = true;
  // Answers share tokens; only in a tiny vocabulary can more be reported than was generated.
  const int64_t shared = std::max<int64_t>(0, beams.told_tokens - beams.usage.generated_tokens);
  beams.usage.generated_tokens += static_cast<uint32_t>(shared);
  totals.generated_tokens += static_cast<uint64_t>(shared);
  const int64_t discarded = beams.usage.generated_tokens - beams.told_tokens;
  beams.usage.discarded_tokens += static_cast<uint32_t>(discarded);
  totals.discarded_tokens += static_cast<uint64_t>(discarded);
  for (const OwnedChoice& beam : beams.rows) {
    // Samples in flight are dropped and counted when they come.
    beams.usage.generated_tokens += static_cast<uint32_t>(beam->samples_in_flight);
    beams.usage.discarded_tokens += static_cast<uint32_t>(beam->samples_in_flight);
    if (beam->place != SequencePlace::kNone) scheduler.Remove(*beam);
    AddWork(*beam, beams);
  }
}

}  // namespace quire
