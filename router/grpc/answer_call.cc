#include "router/grpc/answer_call.h"

#include <algorithm>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "common/check.h"
#include "common/utf8.h"
#include "router/grpc/call_facts.h"
#include "router/grpc/messages.h"
#include "router/keys/tenant_access.h"

namespace quire {

namespace {

constexpr size_t kPromptPartBytes = 64u << 10;
constexpr size_t kPromptPartTokens = 512;
constexpr int kMostMoreEvents = 4;

v1::GenerateResponse& LatestEvent(v1::GenerateResponse& message) {
  const int more = message.more_size();
  return more == 0 ? message : *message.mutable_more(more - 1);
}

template <class Is>
bool HasEvent(const v1::GenerateResponse& message, Is is) {
  return is(message) || std::any_of(message.more().begin(), message.more().end(), is);
}

}  // namespace

AnswerCall::~AnswerCall() { QUIRE_CHECK(id_ == 0); }

void AnswerCall::Begin(std::optional<ApiError> problem, GenerateRequest request,
                       bool joins_events) {
  services_.counters.grpc_requests.Add();
  if (request.request_id.empty()) request.request_id = NewRequestId(services_.rng);
  call_->AddInitialMetadata("x-request-id", request.request_id);
  if (!problem) problem = CheckModelAccess(services_, request.tenant, request.model);
  if (problem) return OnError(*problem);
  joins_events_ = joins_events;
  request_id_ = request.request_id;
  choices_left_ = static_cast<uint32_t>(request.sampling.n);
  id_ = services_.pipeline.Start(std::move(request), this);
  const std::string trace = trace::TraceResponse(services_.pipeline.TraceOf(id_));
  if (!trace.empty()) call_->AddInitialMetadata("traceresponse", trace);
}

void AnswerCall::OnCancelled() {
  if (std::exchange(ended_, true)) return;
  services_.counters.grpc_cancelled.Add();
  if (id_ != 0) services_.pipeline.Cancel(std::exchange(id_, 0));
  writer_.Drop();
}

void AnswerCall::OnTaken(uint64_t whose, uint64_t index) {
  if (id_ != 0) services_.pipeline.Taken(id_, static_cast<uint32_t>(whose), index);
}

// A client that accepts joined events gets those that wait together in one message: each message
// costs the client and this router more than its content.
template <class Apart, class Fill>
void AnswerCall::Tell(Apart apart, Fill fill) {
  const bool joined = joins_events_ && writer_.JoinLast([&](Writer::Message& last) {
    if (last.response.more_size() >= kMostMoreEvents || HasEvent(last.response, apart))
      return false;
    fill(last, *last.response.add_more());
    return true;
  });
  if (joined) return;
  auto message = std::make_unique<Writer::Message>();
  fill(*message, message->response);
  writer_.Add(std::move(message));
}

// Nothing is written yet: the first output follows at once, and they leave together.
void AnswerCall::OnStarted(const Started& started) {
  // A worker chooses its own name: not every name is valid in a header.
  if (!started.worker.empty() && IsVisibleAscii(started.worker)) {
    call_->AddInitialMetadata("x-quire-worker", started.worker);
  }
  auto message = std::make_unique<Writer::Message>();
  ToProto(started, request_id_, *message->response.mutable_started());
  writer_.Add(std::move(message));
  AddPrompt(started);
}

// In messages of a moderate size, whatever the prompt's.
void AnswerCall::AddPrompt(const Started& started) {
  const std::string_view text = started.prompt_text;
  for (size_t begin = 0, end = 0; begin < text.size(); begin = end) {
    end = std::min(text.size(), begin + kPromptPartBytes);
    // Never within a character: bytes that continue one go with those before them.
    while (end < text.size() && (static_cast<unsigned char>(text[end]) & 0xC0) == 0x80) ++end;
    AddPromptPart(
        [&](v1::PromptPart& part) { part.set_text(std::string(text.substr(begin, end - begin))); });
  }
  const std::span<const TokenLogprob> logprobs(started.prompt_logprobs);
  for (size_t begin = 0; begin < logprobs.size(); begin += kPromptPartTokens) {
    const size_t count = std::min(kPromptPartTokens, logprobs.size() - begin);
    AddPromptPart(
        [&](v1::PromptPart& part) { ToProto(logprobs.subspan(begin, count), begin, part); });
  }
}

template <class Fill>
void AnswerCall::AddPromptPart(Fill fill) {
  Tell([](const v1::GenerateResponse& event) { return event.has_prompt(); },
       [&](Writer::Message&, v1::GenerateResponse& event) { fill(*event.mutable_prompt()); });
}

void AnswerCall::OnDelta(const Delta& delta) {
  AddDelta(delta);
  WriteAfterTurn();
}

// Output that waits while a write is under way is sent together.
void AnswerCall::AddDelta(const Delta& delta) {
  const uint64_t end = delta.first_index + delta.ids.size();
  if (told_.size() <= delta.choice) told_.resize(delta.choice + 1, 0);
  std::optional<uint64_t> taken;
  if (end >= told_[delta.choice] + services_.limits.taken_step) taken = told_[delta.choice] = end;
  const auto fill = [&](Writer::Message& message, v1::GenerateResponse& event) {
    message.whose = delta.choice;
    if (taken) message.taken = taken;
    AppendToProto(delta, *event.mutable_delta());
  };
  const bool appended = writer_.JoinLast([&](Writer::Message& last) {
    v1::GenerateResponse& latest = LatestEvent(last.response);
    if (!latest.has_delta() || last.whose != delta.choice) return false;
    if (!MayFollow(delta, latest.delta())) return false;
    fill(last, latest);
    return true;
  });
  // At most one in a message, whose size a client may limit.
  if (!appended) Tell([](const v1::GenerateResponse& event) { return event.has_delta(); }, fill);
}

void AnswerCall::WriteAfterTurn() {
  if (std::exchange(write_posted_, true)) return;
  call_->host().AfterTurn([self = shared_from_this()] {
    self->write_posted_ = false;
    self->writer_.Write();
  });
}

void AnswerCall::OnChoiceEnd(const ChoiceEnd& end) {
  QUIRE_CHECK(choices_left_ > 0);
  --choices_left_;
  Tell([](const v1::GenerateResponse&) { return false; },
       [&](Writer::Message&, v1::GenerateResponse& event) { ToProto(end, *event.mutable_done()); });
  if (choices_left_ > 0) WriteAfterTurn();  // otherwise the end of the call follows at once
}

void AnswerCall::OnFinished(const Usage& usage) {
  id_ = 0;
  if (choices_left_ > 0) {
    return End(absl::InternalError("the answer ended before every choice had a finish reason"));
  }
  Tell([](const v1::GenerateResponse&) { return false; },
       [&](Writer::Message&, v1::GenerateResponse& event) {
         ToProto(usage, *event.mutable_usage());
       });
  End(absl::OkStatus());
}

void AnswerCall::OnError(const ApiError& error) {
  id_ = 0;
  services_.counters.grpc_errors.Add();
  End(EndOf(error));
}

void AnswerCall::End(const GrpcEnd& end) {
  if (!std::exchange(ended_, true)) writer_.End(end);
}

}  // namespace quire
