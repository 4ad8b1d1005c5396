#include "router/pipeline/request.h"

#include <algorithm>
#include <span>
#include <utility>

#include "common/check.h"
#include "common/planted_bug.h"
#include "common/release.h"
#include "common/utf8.h"
#include "common/wire/features.h"
#include "common/wire/router_frames.h"
#include "common/wire/worker_frames.h"
#include "router/chat/salt.h"

namespace quire {
namespace {

constexpr size_t kMaxRequestIdBytes = 256;  // longer ones are cut: they are for logs only
// Tokens reserved for a tenant where max_tokens is not given.
constexpr uint64_t kUnstatedOutputTokens = 1024;
// The outputs for which a worker should have blocks at the start; more come block by block, or by
// preemption.
constexpr uint64_t kExpectedOutputTokens = 256;

std::optional<ApiError> CheckResume(const GenerateRequest& ask, const ServedModel& model) {
  const ResumeRequest& resume = *ask.resume;
  if (resume.model_id != model.Answerer()) {
    return ApiError{
        ApiCode::kConflict,
        "resume: the answer was begun by another model than the one served as " + model.facts.name,
        "resume", 0};
  }
  if (resume.outputs.size() != static_cast<size_t>(ask.sampling.n)) {
    return InvalidField("resume", "must hold the outputs of each of the n choices");
  }
  size_t total = 0;
  for (const std::vector<TokenId>& ids : resume.outputs) {
    total += ids.size();
    if (ids.size() > model.facts.max_model_len) {
      return InvalidField("resume", "holds more outputs than the context has room for");
    }
    for (const TokenId id : ids) {
      if (id >= 0 && static_cast<uint32_t>(id) < model.facts.vocab_size) continue;
      return InvalidField("resume", "holds a token id outside the vocabulary");
    }
  }
  if (total > kMaxResumedIds) {
    return InvalidField("resume", "must hold at most " + std::to_string(kMaxResumedIds) +
                                      " outputs, all choices together");
  }
  if (total > 0 && !MissingFeature({std::string(kFeatureResume)}, model.facts.features).empty()) {
    return InvalidField("resume", "is not served by this model's workers");
  }
  return std::nullopt;
}

std::optional<ApiError> CheckConstraint(const GenerateRequest& ask, const ServedModel& model) {
  if (!MissingFeature({std::string(kFeatureConstraint)}, model.facts.features).empty()) {
    return InvalidField(ask.constraint_field,
                        "is not served by this model's workers; leave it out");
  }
  // Also for one that was made of tools, or moved behind thoughts: it has to fit a frame.
  const size_t bytes = ask.constraint.source.size();
  if (bytes > kMaxConstraintBytes) {
    return InvalidField(ask.constraint_field,
                        "becomes a grammar of " + std::to_string(bytes) + " bytes; at most " +
                            std::to_string(kMaxConstraintBytes) + " can be enforced");
  }
  if (!ask.sampling.use_beam_search) return std::nullopt;
  return InvalidField(ask.constraint_field, "cannot be used together with use_beam_search");
}

std::optional<ApiError> TakeThoughtBudget(std::shared_ptr<const ThoughtBudget> budget,
                                          LiveRequest& request) {
  if (budget == nullptr) return std::nullopt;
  const Thinking& thinking = request.ask.thinking;
  const bool served =
      MissingFeature({std::string(kFeatureThoughtBudget)}, request.model.facts.features).empty();
  if (served && request.ask.sampling.use_beam_search) {
    return InvalidField(thinking.budget_field, "cannot be used together with use_beam_search");
  }
  if (!served && thinking.budget_firm) {
    return InvalidField(thinking.budget_field,
                        "is not served by this model's workers; leave it out");
  }
  if (served) request.thought_budget = std::move(budget);
  return std::nullopt;
}

// A model that does not say how it writes calls would write them as text.
std::optional<ApiError> CheckTools(const GenerateRequest& ask, const ServedModel& model) {
  const auto* chat = std::get_if<ChatPrompt>(&ask.prompt);
  if (chat == nullptr || !ask.read_answer || chat->tools_json.empty()) return std::nullopt;
  if (ask.tool_use.choice == ToolChoice::kNone) return std::nullopt;
  if (model.format->dialect != nullptr) return std::nullopt;
  return InvalidField("tools", "the chat template of model " + model.facts.name +
                                   " says nothing of tool calls; serve it with "
                                   "--tool-call-parser, one of " +
                                   dialect::DialectNames());
}

// Whether a worker has accepted it: has admitted it, or sent output, even if it forgot to report
// the admission.
bool Ran(const LiveRequest& request) {
  return request.cached_tokens.has_value() || request.accepted_tokens > 0;
}

// Whether the client has received the beginning of the answer.
bool Resumes(const LiveRequest& request) {
  if (!request.ask.resume) return false;
  const auto& outputs = request.ask.resume->outputs;
  return std::any_of(outputs.begin(), outputs.end(), [](const auto& ids) { return !ids.empty(); });
}

// Position 0 follows nothing.
std::vector<TokenLogprob> PromptLogprobsOf(const LiveRequest& request) {
  const PromptLogprobs& from = request.prompt_logprobs;
  const ModelText& text = *request.model.text;
  const std::span<const TokenId> ids = request.prompt_ids;
  const bool skips = request.ask.sampling.skip_special_tokens;
  QUIRE_CHECK_MSG(from.logprobs.size() < ids.size(),
                  "each logprob belongs to a token after the first");
  std::vector<TokenLogprob> all;
  all.reserve(ids.size());
  all.push_back(MakeTokenLogprob(text, ids.front(), 0.0f));
  all.back().unscored = true;
  all.back().hidden = skips && text.IsSpecial(all.back().id);
  for (size_t i = 0; i < from.logprobs.size(); ++i) {
    TokenLogprob& entry = all.emplace_back(MakeTokenLogprob(text, ids[i + 1], from.logprobs[i]));
    entry.rank = from.ranks[i];
    entry.hidden = skips && text.IsSpecial(entry.id);
    if (i < from.top.size()) entry.top = MakeTopLogprobs(text, from.top[i]);
  }
  return all;
}

// The error for more of the prompt's logprobs than a router keeps.
std::optional<ApiError> CheckPromptLogprobs(const LiveRequest& request,
                                            const RouterLimits& limits) {
  const size_t tokens = request.prompt_ids.size();
  const size_t each = static_cast<size_t>(request.sampling.prompt_logprobs);
  if (each * tokens <= limits.max_prompt_logprobs) return std::nullopt;
  return InvalidField("prompt_logprobs", "a prompt of " + std::to_string(tokens) +
                                             " tokens has more of them than " + "are served, " +
                                             std::to_string(limits.max_prompt_logprobs) +
                                             ", at 1 + candidates for each token");
}

// What a router that resumes the answer knows too.
BlockHash IdKeyOf(const LiveRequest& request) {
  const BlockHash root = RootHash(request.model.Answerer(), "", "call", "");
  const auto seed = static_cast<uint64_t>(request.sampling.seed);
  const TokenId halves[] = {static_cast<TokenId>(seed & 0xFFFFFFFF),
                            static_cast<TokenId>(seed >> 32)};
  return HashBlock(HashBlock(root, halves), request.prompt_ids);
}

}  // namespace

SharedRequest FindRequest(const RequestTable& requests, RequestId id) {
  const auto found = requests.find(id);
  return found == requests.end() ? nullptr : found->second;
}

Micros DeadlineOf(const LiveRequest& request) {
  constexpr uint64_t kLongest = uint64_t{7} * 24 * 3600 * 1000;
  const uint64_t timeout_ms = std::min(request.ask.timeout_ms, kLongest);
  if (timeout_ms == 0) return 0;
  return request.arrived + static_cast<Micros>(timeout_ms) * kMicrosPerMilli;
}

int32_t PriorityOf(const GenerateRequest& ask) {
  if (ask.tenant == nullptr || !ask.tenant->highest_priority) return ask.priority;
  return std::max(ask.priority, *ask.tenant->highest_priority);
}

std::optional<ApiError> FitPrompt(LiveRequest& request, SharedTokens prompt_ids,
                                  const RouterLimits& limits) {
  request.prompt_ids = std::move(prompt_ids);
  const Result<int32_t> max_tokens =
      ResolveMaxTokens(request.ask.sampling, {request.prompt_ids.size(), request.prompt_field},
                       request.model.facts, request.ask.chat_defaults);
  if (!max_tokens.ok()) return max_tokens.error();
  request.sampling.max_tokens = max_tokens.value();
  if (request.sampling.min_tokens > request.sampling.max_tokens) {
    return InvalidField("min_tokens", "must be in [0, max_tokens], and max_tokens is " +
                                          std::to_string(max_tokens.value()));
  }
  if (auto error = CheckPromptLogprobs(request, limits)) return error;
  request.choices = static_cast<uint32_t>(request.ask.sampling.n);
  return std::nullopt;
}

ApiError InClientsWords(const LiveRequest& request, ApiError error) {
  const std::pair<std::string_view, std::string_view> names[] = {
      {"prompt", request.prompt_field},
      {"constraint", request.ask.constraint_field},
      {"thought_budget", request.ask.thinking.budget_field},
      {"adapter", "model"},
  };
  const auto* name = std::find_if(std::begin(names), std::end(names),
                                  [&](const auto& each) { return each.first == error.param; });
  if (name == std::end(names)) return error;
  const std::string_view theirs = name->second;
  const std::string opening = error.param + ": ";
  if (error.message.starts_with(opening)) error.message.replace(0, error.param.size(), theirs);
  error.param = std::string(theirs);
  return error;
}

QueueWish QueueWishOf(const LiveRequest& request) {
  QueueWish wish;
  wish.model_id = request.model.model_id;
  uint64_t outputs = static_cast<uint64_t>(request.sampling.max_tokens);
  // A client that does not limit an answer rarely means all of the context.
  if (!request.ask.sampling.max_tokens) outputs = std::min(outputs, kUnstatedOutputTokens);
  wish.tokens = request.prompt_ids.size() + outputs * request.choices;
  for (size_t i = 0; request.ask.resume && i < request.choices; ++i) {
    wish.resumed_bytes += request.ask.resume->outputs[i].size() * sizeof(TokenId);
  }
  return wish;
}

RoomNeed RoomNeedOf(const LiveRequest& request) {
  RoomNeed need;
  need.required_features = RequiredFeatures(request.sampling, request.choices);
  need.prefill_tokens = request.prompt_ids.size();
  const auto outputs = static_cast<uint64_t>(request.sampling.max_tokens);
  need.output_tokens = std::min(outputs, kExpectedOutputTokens) * request.choices;
  for (size_t i = 0; request.ask.resume && i < request.choices; ++i) {
    need.prefill_tokens += request.ask.resume->outputs[i].size();
  }
  if (Resumes(request)) need.required_features.emplace_back(kFeatureResume);
  if (request.ask.constraint.kind != ConstraintKind::kNone) {
    need.required_features.emplace_back(kFeatureConstraint);
  }
  if (request.thought_budget != nullptr) {
    need.required_features.emplace_back(kFeatureThoughtBudget);
  }
  need.adapter = request.model.adapter;
  if (!need.adapter.empty()) need.required_features.emplace_back(kFeatureAdapter);
  return need;
}

bool Complete(const LiveRequest& request) {
  return request.choices > 0 && request.resumed_ends.size() == request.choices;
}

uint64_t TokensTaken(const LiveRequest& request) {
  return Ran(request) ? request.prompt_ids.size() + request.accepted_tokens : 0;
}

std::optional<ApiError> CheckRequest(const GenerateRequest& ask, const ServedModel& model) {
  if (ask.cache_salt.size() > kMaxCacheSaltBytes) {
    return InvalidField("cache_salt",
                        "must have at most " + std::to_string(kMaxCacheSaltBytes) + " bytes");
  }
  if (ask.constraint.kind != ConstraintKind::kNone) {
    if (auto error = CheckConstraint(ask, model)) return error;
  }
  if (auto error = CheckTools(ask, model)) return error;
  return ask.resume ? CheckResume(ask, model) : std::nullopt;
}

std::optional<ApiError> TakePlan(AnswerPlan plan, LiveRequest& request) {
  request.reading = std::move(plan.reading);
  if (auto error = TakeThoughtBudget(std::move(plan.thought_budget), request)) return error;
  if (!plan.constraint) return std::nullopt;
  request.ask.constraint = *std::move(plan.constraint);
  request.ask.constraint_field = plan.constraint_field;
  return CheckConstraint(request.ask, request.model);
}

void MakeStreams(LiveRequest& request) {
  if (!request.streams.empty()) return;
  const SamplingOptions& sampling = request.ask.sampling;
  ChoiceStreamOptions options;
  options.stop = StopPatterns(sampling.stop);
  options.include_stop_str_in_output = sampling.include_stop_str_in_output;
  options.skip_special_tokens = sampling.skip_special_tokens;
  options.want_text = request.ask.want_text;
  options.min_tokens = static_cast<uint64_t>(request.sampling.min_tokens);
  options.stop_token_ids.insert(sampling.stop_token_ids.begin(), sampling.stop_token_ids.end());
  options.constrained = request.ask.constraint.kind != ConstraintKind::kNone;
  if (!request.sampling.ignore_eos || options.constrained) {
    const std::vector<TokenId>& eos = request.model.text->generation().eos_token_ids;
    options.stop_token_ids.insert(eos.begin(), eos.end());
  }
  options.reading = std::move(request.reading);
  options.format = request.model.format;
  if (options.reading) options.reading->id_key = IdKeyOf(request);
  const auto shared = std::make_shared<const ChoiceStreamOptions>(std::move(options));
  const uint64_t max_tokens = static_cast<uint64_t>(request.sampling.max_tokens);
  request.streams.reserve(request.choices);
  for (uint32_t choice = 0; choice < request.choices; ++choice) {
    ChoiceStream& stream = request.streams.emplace_back(shared, choice, *request.model.text);
    if (!request.ask.resume) continue;
    stream.Replay(request.ask.resume->outputs[choice]);
    request.resumed_tokens += stream.completion_tokens();
    if (!stream.complete() && stream.completion_tokens() < max_tokens) continue;
    Ended& ended = request.resumed_ends.emplace_back();
    ended.choice = choice;
    ended.reason = EndReason::kLength;  // or as its stream says
  }
  request.ended.assign(request.choices, false);
  request.finish_reasons.assign(request.choices, "");
  request.last_output_at.assign(request.choices, 0);
  request.moved_by.assign(request.choices, std::nullopt);
}

void BeginRecord(const std::optional<trace::Sampler>& sampler, RouterInstance router,
                 RequestNumber number, LiveRequest& request) {
  RequestRecord& record = request.record;
  record.router = router;
  record.request = number;
  record.operation =
      std::holds_alternative<ChatPrompt>(request.ask.prompt) ? "chat" : "text_completion";
  record.trace = trace::BeginTrace(sampler, request.ask.traceparent, record.router.value(),
                                   record.request.value(), request.ask.tracestate);
  request.ask.tracestate = record.trace.state;  // none without its traceparent
  if (!sampler) return;
  request.ask.traceparent =
      trace::FormatTraceparent({record.trace.id, record.trace.span, record.trace.sampled});
}

Submit MakeSubmit(const LiveRequest& request, SaltBook& salts) {
  const GenerateRequest& ask = request.ask;
  Submit submit;
  submit.prompt_ids = request.prompt_ids;
  submit.prediction_ids = request.prediction_ids;
  submit.choices.resize(request.choices);
  for (size_t i = 0; ask.resume && i < submit.choices.size(); ++i) {
    submit.choices[i].outputs = ask.resume->outputs[i];
    if (QUIRE_BUG(resume_off_by_one) && !submit.choices[i].outputs.empty()) {
      submit.choices[i].outputs.pop_back();
    }
  }
  for (const Ended& ended : request.resumed_ends) submit.choices[ended.choice].ended = true;
  submit.sampling = request.sampling;
  // A client that brings outputs along got the prompt's logprobs before them.
  if (Resumes(request)) submit.sampling.prompt_logprobs = 0;
  submit.constraint = ask.constraint;
  submit.thought_budget = request.thought_budget;
  submit.priority = ask.priority;
  const std::string domain = ask.tenant == nullptr ? "" : ask.tenant->CacheDomain();
  if (ask.tenant != nullptr) submit.tenant = ask.tenant->name;
  submit.salt = salts.Of(domain, ask.cache_salt);
  if (ask.traceparent.size() <= kMaxTraceparentBytes) {
    submit.traceparent = ValidUtf8(ask.traceparent);
    submit.tracestate = ask.tracestate;
  }
  submit.request_id = ValidUtf8(std::string_view(ask.request_id).substr(0, kMaxRequestIdBytes));
  submit.model_id = request.model.model_id;
  submit.adapter = request.model.adapter;
  return submit;
}

Started StartedOf(LiveRequest& request) {
  Started started;
  started.model = request.model.facts.name;
  started.model_id = request.model.Answerer();
  started.seed = request.sampling.seed;
  started.created = request.created;
  started.prompt_ids = request.prompt_ids;
  started.worker = request.worker;
  if (Resumes(request)) return started;
  started.prompt_text = std::exchange(request.prompt_text, {});
  if (request.sampling.prompt_logprobs > 0) started.prompt_logprobs = PromptLogprobsOf(request);
  Release(request.prompt_logprobs);
  return started;
}

void NoteAdmitted(const WorkerRecord& worker, uint32_t cached_tokens, LiveRequest& request) {
  if (request.cached_tokens) return;
  request.cached_tokens = cached_tokens;
  request.worker = worker.hello.worker_id;
}

void NoteStart(LiveRequest& request, Micros now) {
  if (Complete(request)) return;
  request.record.first_token_us = now - request.arrived;
  request.felt->first_token_seconds.Observe(static_cast<double>(now - request.arrived) /
                                            kMicrosPerSecond);
}

void TakePromptLogprobs(LiveRequest& request, const PromptLogprobs& part) {
  PromptLogprobs& all = request.prompt_logprobs;
  QUIRE_CHECK_MSG(part.first_position == all.logprobs.size() + 1, "each position comes once");
  all.logprobs.insert(all.logprobs.end(), part.logprobs.begin(), part.logprobs.end());
  all.ranks.insert(all.ranks.end(), part.ranks.begin(), part.ranks.end());
  all.top.insert(all.top.end(), part.top.begin(), part.top.end());
}

void NoteOutput(LiveRequest& request, const Output& output, Micros now, ServingMetrics& metrics) {
  request.accepted_tokens += output.ids.size();
  request.accepted_predictions += output.accepted_prediction_tokens;
  request.rejected_predictions += output.rejected_prediction_tokens;
  const auto moved = std::exchange(request.moved_by.at(output.choice), std::nullopt);
  const Micros last = std::exchange(request.last_output_at.at(output.choice), now);
  if (last == 0) return;
  const double seconds = static_cast<double>(now - last) / kMicrosPerSecond;
  request.felt->gap_seconds.Observe(seconds);
  if (moved) metrics.CarriedOn(*moved, seconds);
}

RequestRecord RecordOf(const LiveRequest& request, RequestRecord record, RequestEnd end,
                       Micros now) {
  record.request_id = request.ask.request_id.substr(0, kMaxRequestIdBytes);
  if (request.ask.tenant != nullptr) record.tenant = request.ask.tenant->name;
  record.model = request.model.model_id.empty() ? request.ask.model : request.model.facts.name;
  record.model_id = request.model.model_id;
  record.adapter = request.model.adapter;
  record.priority = request.ask.priority;
  record.streaming = request.ask.streaming;
  record.end = end;
  record.finish_reasons = request.finish_reasons;
  record.resumed_tokens = request.resumed_tokens;
  record.accepted_tokens = request.accepted_tokens;
  record.total_us = now - request.arrived;
  record.arrived_at = request.arrived;
  const SamplingParams& sampling = request.sampling;
  record.sampled_with = {sampling, request.choices, sampling.max_tokens};
  if (!Ran(request)) return record;
  const Usage usage = UsageOf(request);
  record.prompt_tokens = usage.prompt_tokens;
  record.cached_tokens = usage.cached_tokens;
  record.delivered_tokens = usage.completion_tokens - request.resumed_tokens;
  QUIRE_CHECK_MSG(record.delivered_tokens <= record.accepted_tokens,
                  "what was delivered was accepted first");
  record.discarded_tokens = record.accepted_tokens - record.delivered_tokens;
  return record;
}

Usage UsageOf(const LiveRequest& request) {
  Usage usage;
  usage.prompt_tokens = static_cast<uint32_t>(request.prompt_ids.size());
  usage.cached_tokens = std::min(request.cached_tokens.value_or(0), usage.prompt_tokens);
  for (const ChoiceStream& stream : request.streams) {
    usage.completion_tokens += static_cast<uint32_t>(stream.completion_tokens());
    usage.reasoning_tokens += static_cast<uint32_t>(stream.reasoning_tokens());
  }
  usage.has_prediction = request.has_prediction;
  // What came behind a stop string is no token of the answer.
  usage.accepted_prediction_tokens = static_cast<uint32_t>(
      std::min<uint64_t>(request.accepted_predictions, usage.completion_tokens));
  usage.rejected_prediction_tokens = static_cast<uint32_t>(request.rejected_predictions);
  return usage;
}

ChoiceEnd ChoiceEndOf(const LiveRequest& request, const Ended& ended) {
  ChoiceEnd end;
  end.choice = ended.choice;
  const ChoiceStream& stream = request.streams.at(ended.choice);
  end.stop_string = stream.stop_string();
  // Text that was held back may have completed it at the very end.
  const bool stopped = ended.reason == EndReason::kStop || stream.complete();
  end.finish_reason = !stopped ? "length" : stream.calls_tools() ? "tool_calls" : "stop";
  const std::vector<TokenId>& asked = request.ask.sampling.stop_token_ids;
  const bool by_asked = ended.by_stop_token &&
                        std::find(asked.begin(), asked.end(), ended.stop_token_id) != asked.end();
  if (by_asked) end.stop_token = ended.stop_token_id;
  return end;
}

}  // namespace quire
