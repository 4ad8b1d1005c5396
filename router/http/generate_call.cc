#include "router/http/generate_call.h"

#include <optional>

#include "common/check.h"
#include "common/release.h"
#include "router/core/result.h"
#include "router/http/body_job.h"
#include "router/http/errors.h"
#include "router/http/routes.h"
#include "router/keys/tenant_access.h"
#include "router/pipeline/held_bytes.h"

namespace quire {

struct GenerateCall::ParseJob : BodyJob {
  ParseJob(GenerateCall& owner, HttpServices& services)
      : BodyJob(services, owner.http_), call(owner), kind(owner.kind_) {}
  void Parse() { problem = ParseApiRequest(kind, body, limits, parsed); }
  void Done() { call.Parsed(std::move(problem), std::move(parsed)); }

  GenerateCall& call;  // of Done: it may go while its body is parsed
  const ApiKind kind;
  ApiRequest parsed;
};

namespace {

// A piece of an answer that is kept until the answer is complete; its buffer doubles as it grows.
size_t BytesOf(const Delta& delta) {
  size_t logprobs = 0;
  for (const TokenLogprob& token : delta.logprobs) logprobs += 1 + token.top.size();
  size_t text = delta.text.size() + delta.reasoning.size();
  for (const ToolCallDelta& piece : delta.tool_calls) {
    text += sizeof(WholeCall) + piece.id.size() + piece.name.size() + piece.arguments.size();
  }
  return 2 * (text + sizeof(TokenId) * delta.ids.size()) + kBytesPerLogprob * logprobs;
}

}  // namespace

std::unique_ptr<Call> GenerateCall::Begin(HttpServices& services, ApiKind kind, HttpRequest request,
                                          Exchange& exchange) {
  std::unique_ptr<GenerateCall> call(
      new GenerateCall(services, kind, std::move(request), exchange));
  call->parse_job_ = std::make_shared<ParseJob>(*call, services);
  if (!ParseBody(services, call->http_.tenant, std::shared_ptr(call->parse_job_))) {
    call->Refuse(TooManyLargeRequests());
  }
  if (call->finished_) return nullptr;
  return call;
}

GenerateCall::GenerateCall(HttpServices& services, ApiKind kind, HttpRequest request,
                           Exchange& exchange)
    : services_(services),
      exchange_(exchange),
      http_(std::move(request)),
      kind_(kind),
      answer_hold_(std::make_shared<MemoryHold>(services.pipeline.MemoryOf(http_.tenant.get()))),
      events_(services, exchange) {}

GenerateCall::~GenerateCall() {
  if (parse_job_) parse_job_->cancelled = true;
  CancelAll();
}

void GenerateCall::CancelAll() {
  events_.Stop();
  release_timer_.Stop();
  for (const std::unique_ptr<Part>& part : parts_) {
    if (part->id != 0) services_.pipeline.Cancel(part->id);
    part->id = 0;
  }
  parts_live_ = 0;
}

void GenerateCall::Refuse(const ApiError& error) {
  QUIRE_CHECK(!events_.begun());
  finished_ = true;
  CancelAll();
  exchange_.Reply(ErrorResponse(error));
}

void GenerateCall::Parsed(std::optional<ApiError> problem, ApiRequest parsed) {
  parse_job_.reset();
  uint64_t timeout_ms = 0;
  if (!problem) problem = ReadTimeouts(http_, timeout_ms);
  if (!problem) {
    problem = CheckModelAccess(services_, http_.tenant, parsed.requests[0].model);
  }
  if (problem) return Refuse(*problem);
  api_ = std::move(parsed);
  Launch(timeout_ms);
}

void GenerateCall::Launch(uint64_t timeout_ms) {
  const SamplingOptions& sampling = api_.requests[0].sampling;
  choices_per_prompt_ = static_cast<uint32_t>(sampling.n);
  const std::string id =
      api_.requests[0].request_id.empty() ? http_.request_id : api_.requests[0].request_id;
  writer_ = std::make_unique<AnswerWriter>(
      AnswerHead{.kind = kind_,
                 .id = (kind_ == ApiKind::kChat ? "chatcmpl-" : "cmpl-") + id,
                 .logprobs = sampling.logprobs,
                 .prompt_logprobs = api_.prompt_logprobs,
                 .return_token_ids = api_.return_token_ids,
                 .tokens_as_ids = api_.return_tokens_as_ids,
                 .include_usage = api_.include_usage,
                 .style = {.functions = api_.functions,
                           .named = api_.requests[0].tool_use.choice == ToolChoice::kNamed,
                           .reasoning = api_.include_reasoning}});
  echo_ = api_.requests[0].echo;
  const size_t choice_count = api_.requests.size() * choices_per_prompt_;
  choice_states_.resize(choice_count);
  if (!api_.stream) {
    whole_choices_.resize(choice_count);
    for (size_t i = 0; i < choice_count; ++i) whole_choices_[i].index = static_cast<uint32_t>(i);
  }
  const bool several = api_.requests.size() > 1;
  for (size_t i = 0; i < api_.requests.size(); ++i) {
    GenerateRequest request = std::move(api_.requests[i]);
    request.request_id = several ? id + "-" + std::to_string(i) : id;
    request.timeout_ms = timeout_ms;
    ApplyHeaders(http_, request);
    parts_.push_back(std::make_unique<Part>(*this, i));
    ++parts_live_;
    parts_.back()->id = services_.pipeline.Start(std::move(request), parts_.back().get());
  }
  // Several prompts share a trace where their client has one; the first one represents them.
  const trace::RequestTrace trace = services_.pipeline.TraceOf(parts_.front()->id);
  exchange_.SetTraceResponse(trace::TraceResponse(trace));
  CountUnknownFields(services_, http_.request_id, trace, api_.unknown_fields);
  if (api_.stream) events_.BeginInTime();
}

uint32_t GenerateCall::IndexOf(const Part& part, uint32_t choice) const {
  return static_cast<uint32_t>(part.index_) * choices_per_prompt_ + choice;
}

void GenerateCall::PartWaits(const std::string& what) {
  if (api_.stream) events_.Comment(what);
}

void GenerateCall::PartStarted(Part& part, const Started& started) {
  if (!begun_) {
    writer_->Begin(started);
    events_.SetWorker(started.worker);
  }
  begun_ = true;
  part.prompt = {started.prompt_ids, started.prompt_logprobs};
  part.echo_text = started.prompt_text;
  // Completions write them with every choice.
  const size_t copies = kind_ == ApiKind::kChat ? 1 : choices_per_prompt_;
  for (const TokenLogprob& token : started.prompt_logprobs) {
    prompt_logprobs_ += copies * (1 + token.top.size());
  }
  const size_t limit = services_.limits.max_prompt_logprobs;
  if (prompt_logprobs_ > limit) {
    return FailAll(InvalidField(
        "prompt_logprobs", "the prompts and their choices have more of them than are served, " +
                               std::to_string(limit)));
  }
  if (api_.stream || !echo_) return;
  for (uint32_t choice = 0; choice < choices_per_prompt_; ++choice) {
    Delta echo = EchoOf(part);
    if (!HoldMore(BytesOf(echo))) return;
    AnswerChoice& whole = whole_choices_[IndexOf(part, choice)];
    whole.text = std::move(echo.text);
    whole.logprobs = std::move(echo.logprobs);
  }
}

bool GenerateCall::HoldMore(size_t bytes) {
  if (answer_hold_->TryResize(answer_hold_->bytes() + bytes)) return true;
  FailAll(NoMemoryForAnswer());
  return false;
}

Delta GenerateCall::EchoOf(const Part& part) const {
  Delta echo;
  echo.text = part.echo_text;
  if (!writer_->head().logprobs) return echo;
  echo.logprobs = part.prompt.logprobs;
  const size_t shown = static_cast<size_t>(*writer_->head().logprobs);
  for (TokenLogprob& token : echo.logprobs) {
    if (token.top.size() > shown) token.top.erase(token.top.begin() + shown, token.top.end());
  }
  return echo;
}

// A chat's role comes with the first token, never before it: it must not be mistaken for a first
// token.
void GenerateCall::OpenChoice(Part& part, uint32_t index) {
  if (choice_states_[index].opened) return;
  choice_states_[index].opened = true;
  const bool chat = kind_ == ApiKind::kChat;
  ChunkParts parts{.index = index, .role = chat};
  const Delta echo = echo_ ? EchoOf(part) : Delta();
  if (echo_) parts.delta = &echo;
  // In a chat it is beside the choices, once.
  const bool shows = writer_->head().prompt_logprobs && !part.prompt.logprobs.empty();
  if (shows && (!chat || index == 0)) parts.prompt_logprobs = &part.prompt.logprobs;
  if (chat || echo_ || parts.prompt_logprobs) SendChunk(part, parts);
}

void GenerateCall::PartDelta(Part& part, const Delta& delta) {
  const uint32_t index = IndexOf(part, delta.choice);
  QUIRE_CHECK(begun_ && delta.choice < choices_per_prompt_);
  choice_states_[index].tokens += delta.ids.size();
  if (!api_.stream) {
    if (!HoldMore(BytesOf(delta))) return;
    AnswerChoice& choice = whole_choices_[index];
    choice.text += delta.text;
    choice.reasoning += delta.reasoning;
    for (const ToolCallDelta& piece : delta.tool_calls) AddPiece(piece, choice.calls);
    choice.ids.insert(choice.ids.end(), delta.ids.begin(), delta.ids.end());
    choice.logprobs.insert(choice.logprobs.end(), delta.logprobs.begin(), delta.logprobs.end());
    return;
  }
  events_.Begin();
  const bool says_something = SaysWords(delta, writer_->head().style) ||
                              !delta.tool_calls.empty() || api_.return_token_ids ||
                              !delta.logprobs.empty();
  OpenChoice(part, index);
  if (says_something) SendChunk(part, {.index = index, .delta = &delta});
  WriteOut();
  marks_.push_back(
      {queued_bytes_, part.index_, delta.choice, delta.first_index + delta.ids.size()});
  if (marks_[marks_released_].bytes <= written_bytes_ && !release_timer_.running()) {
    // Nothing waits to be written, since the text is still held back: the outputs are reported as
    // taken anyway, but not from inside the pipeline's own call.
    release_timer_.SetIn(0, [this] { ReleaseMarks(); });
  }
}

void GenerateCall::SendChunk(Part& part, ChunkParts parts) {
  if (!part.prompt_ids_sent) {
    parts.prompt_ids = &part.prompt.ids;
    part.prompt_ids_sent = true;
  }
  Usage running;
  if (api_.continuous_usage) {
    running.prompt_tokens = static_cast<uint32_t>(part.prompt.ids.size());
    running.completion_tokens = static_cast<uint32_t>(choice_states_[parts.index].tokens);
    parts.usage = &running;
  }
  writer_->AppendChunks(parts, scratch_);
}

void GenerateCall::PartChoiceEnd(Part& part, const ChoiceEnd& end) {
  const uint32_t index = IndexOf(part, end.choice);
  QUIRE_CHECK(begun_ && end.choice < choices_per_prompt_);
  ++part.choices_ended;
  if (!api_.stream) {
    whole_choices_[index].end = end;
    return;
  }
  events_.Begin();
  OpenChoice(part, index);
  SendChunk(part, {.index = index, .end = &end});
  WriteOut();
}

void GenerateCall::PartFinished(Part& part, const Usage& usage) {
  part.id = 0;
  if (part.choices_ended != choices_per_prompt_) {
    ApiError error;
    error.message = "the answer ended before every choice had a finish reason";
    PartError(part, error);
    return;
  }
  usage_.prompt_tokens += usage.prompt_tokens;
  usage_.completion_tokens += usage.completion_tokens;
  usage_.cached_tokens += usage.cached_tokens;
  usage_.reasoning_tokens += usage.reasoning_tokens;
  usage_.has_prediction = usage_.has_prediction || usage.has_prediction;
  usage_.accepted_prediction_tokens += usage.accepted_prediction_tokens;
  usage_.rejected_prediction_tokens += usage.rejected_prediction_tokens;
  QUIRE_CHECK(parts_live_ > 0);
  if (--parts_live_ > 0) return;
  finished_ = true;
  CancelAll();
  if (api_.stream) {
    FinishStream();
  } else {
    FinishWhole();
  }
}

void GenerateCall::PartError(Part& part, const ApiError& error) {
  part.id = 0;
  FailAll(error);
}

void GenerateCall::FailAll(const ApiError& error) {
  if (!events_.begun()) return Refuse(error);
  finished_ = true;
  CancelAll();
  services_.counters.stream_error_events.Add();
  const bool resumable = error.code == ApiCode::kUnavailable && begun_ && parts_.size() == 1;
  writer_->AppendErrorEvent(error, resumable, scratch_);
  WriteOut();
  exchange_.EndStream();
}

void GenerateCall::FinishStream() {
  events_.Begin();
  if (api_.include_usage) writer_->AppendUsageChunk(usage_, scratch_);
  AnswerWriter::AppendDone(scratch_);
  WriteOut();
  exchange_.EndStream();
}

void GenerateCall::FinishWhole() {
  struct Whole {
    std::shared_ptr<MemoryHold> hold;
    std::unique_ptr<AnswerWriter> writer;
    std::vector<AnswerChoice> choices;
    std::vector<AnswerPrompt> prompts;
    Usage usage;
    uint32_t choices_per_prompt = 1;
  };
  const size_t bytes = answer_hold_->bytes() + kBytesPerLogprob * prompt_logprobs_;
  const auto whole = std::make_shared<Whole>();
  whole->hold = std::move(answer_hold_);
  whole->writer = std::move(writer_);
  whole->choices = std::move(whole_choices_);
  whole->prompts.reserve(parts_.size());
  for (const std::unique_ptr<Part>& part : parts_) {
    whole->prompts.push_back(std::move(part->prompt));
  }
  whole->usage = usage_;
  whole->choices_per_prompt = choices_per_prompt_;
  HttpResponse head;
  events_.AddWorker(head.headers);
  auto write = [whole, head = std::move(head)]() mutable {
    head.body = whole->writer->WholeAnswer(whole->choices, whole->usage, whole->prompts,
                                           whole->choices_per_prompt);
    Release(whole->choices);
    whole->hold->Resize(0);
    return std::move(head);
  };
  if (!WholeAnswerWriter::IsLarge(services_, bytes)) return exchange_.Reply(write());
  const auto problem =
      whole_writer_.Write(services_, http_.tenant, bytes, std::move(write),
                          [this](HttpResponse response) { exchange_.Reply(std::move(response)); });
  if (problem) exchange_.Reply(ErrorResponse(*problem));
}

void GenerateCall::WriteOut() {
  queued_bytes_ = events_.Write(scratch_);
  EventStream::Empty(scratch_);
}

void GenerateCall::OnWritten(uint64_t total) {
  written_bytes_ = total;
  ReleaseMarks();
}

// One place in memory for a stream whose client keeps up: a queue that moves on would touch new
// cache lines for each token of each stream.
void GenerateCall::ReleaseMarks() {
  const auto due = [this] {
    return marks_released_ < marks_.size() && marks_[marks_released_].bytes <= written_bytes_;
  };
  while (due()) {
    const Mark mark = marks_[marks_released_++];
    // Later marks of the same choice that are also due include this one.
    if (due() && marks_[marks_released_].part == mark.part &&
        marks_[marks_released_].choice == mark.choice) {
      continue;
    }
    const RequestId id = parts_[mark.part]->id;
    if (id != 0) services_.pipeline.Taken(id, mark.choice, mark.index);
  }
  constexpr size_t kMuch = 64;
  const bool all = marks_released_ == marks_.size();
  if (!all && (marks_released_ < kMuch || 2 * marks_released_ < marks_.size())) return;
  marks_.erase(marks_.begin(), marks_.begin() + static_cast<ptrdiff_t>(marks_released_));
  marks_released_ = 0;
}

}  // namespace quire
