#include "router/grpc/answer_call_grpc.h"

#include <grpcpp/server_context.h>

#include <algorithm>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "common/check.h"
#include "router/core/utf8.h"
#include "router/grpc/messages_grpc.h"

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

AnswerCall::~AnswerCall() { QUIRE_CHECK(ended_ && id_ == 0); }

void AnswerCall::Begin(GenerateRequest request) {
  if (broken_) {
    End(grpc::Status(grpc::StatusCode::CANCELLED, "cancelled"));
    return;
  }
  request_id_ = request.request_id;
  choices_left_ = static_cast<uint32_t>(request.sampling.n);
  id_ = services_.pipeline.Start(std::move(request), this);
  const std::string trace = trace::TraceResponse(services_.pipeline.TraceOf(id_));
  if (!trace.empty()) context_->AddInitialMetadata("traceresponse", trace);
}

void AnswerCall::Refuse(const ApiError& error) { OnError(error); }

void AnswerCall::GiveUp() {
  if (id_ != 0) services_.pipeline.Cancel(id_);
  id_ = 0;
  broken_ = true;
  writer_.Break();
}

void AnswerCall::Cancelled() {
  if (ended_ || broken_) return;
  services_.counters.grpc_cancelled.Add();
  GiveUp();
  End(grpc::Status(grpc::StatusCode::CANCELLED, "the client gave the call up"));
}

void AnswerCall::Heard(const WriteNews& news) {
  if (news.taken && id_ != 0) {
    services_.pipeline.Taken(id_, static_cast<uint32_t>(news.whose), *news.taken);
  }
  if (!news.broken || broken_) return;
  GiveUp();
  End(grpc::Status(grpc::StatusCode::CANCELLED, "the client is gone"));
}

// A client that takes joined events gets those that wait together in one message: each message
// costs it, and this router, more than what it holds.
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
  // A worker names itself: gRPC aborts on a value that no header may have.
  if (!started.worker.empty() && IsVisibleAscii(started.worker)) {
    context_->AddInitialMetadata("x-quire-worker", started.worker);
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

// What waits while a write is under way travels together.
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
    fill(last, latest);
    return true;
  });
  // At most one in a message, whose size a client may limit.
  if (!appended) Tell([](const v1::GenerateResponse& event) { return event.has_delta(); }, fill);
}

void AnswerCall::WriteAfterTurn() {
  if (std::exchange(write_posted_, true)) return;
  services_.AfterTurn([self = shared_from_this()] {
    self->write_posted_ = false;
    self->writer_.Write();
  });
}

void AnswerCall::OnChoiceEnd(const ChoiceEnd& end) {
  QUIRE_CHECK(choices_left_ > 0);
  --choices_left_;
  Tell([](const v1::GenerateResponse&) { return false; },
       [&](Writer::Message&, v1::GenerateResponse& event) { ToProto(end, *event.mutable_done()); });
  if (choices_left_ > 0) WriteAfterTurn();  // else the end of the call follows at once
}

void AnswerCall::OnFinished(const Usage& usage) {
  id_ = 0;
  if (choices_left_ > 0) {
    End(grpc::Status(grpc::StatusCode::INTERNAL,
                     "the answer ended before every choice had a finish reason"));
    return;
  }
  Tell([](const v1::GenerateResponse&) { return false; },
       [&](Writer::Message&, v1::GenerateResponse& event) {
         ToProto(usage, *event.mutable_usage());
       });
  End(grpc::Status::OK);
}

void AnswerCall::OnError(const ApiError& error) {
  id_ = 0;
  services_.counters.grpc_errors.Add();
  TellWhenToComeBack(error);
  End(ToStatus(error));
}

// As trailing metadata: for people as over HTTP, and for gRPC's own retries.
void AnswerCall::TellWhenToComeBack(const ApiError& error) {
  if (context_ == nullptr || ended_ || error.retry_after_ms == 0) return;
  const uint32_t seconds = (error.retry_after_ms + 999) / 1000;
  context_->AddTrailingMetadata("retry-after", std::to_string(seconds));
  context_->AddTrailingMetadata("grpc-retry-pushback-ms", std::to_string(error.retry_after_ms));
}

void AnswerCall::End(grpc::Status status) {
  if (std::exchange(ended_, true)) return;
  writer_.End(std::move(status));
}

}  // namespace quire
