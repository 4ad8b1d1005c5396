#include "router/grpc/answer_call_grpc.h"

#include <grpcpp/server_context.h>

#include <algorithm>
#include <span>
#include <string>
#include <string_view>

#include "common/check.h"
#include "router/grpc/messages_grpc.h"

namespace quire {

namespace {

constexpr size_t kPromptPartBytes = 64u << 10;
constexpr size_t kPromptPartTokens = 512;

}  // namespace

AnswerCall::~AnswerCall() { QUIRE_CHECK(reactor_ == nullptr && id_ == 0); }

void AnswerCall::Begin(GenerateRequest request) {
  if (broken_) {
    End(grpc::Status(grpc::StatusCode::CANCELLED, "cancelled"));
    return;
  }
  request_id_ = request.request_id;
  choices_left_ = static_cast<uint32_t>(request.sampling.n);
  id_ = services_.pipeline.Start(std::move(request), this);
}

void AnswerCall::Refuse(const ApiError& error) { OnError(error); }

void AnswerCall::GiveUp() {
  if (id_ != 0) services_.pipeline.Cancel(id_);
  id_ = 0;
  waiting_.clear();
}

void AnswerCall::Cancelled() {
  if (reactor_ == nullptr || broken_) return;
  services_.counters.grpc_cancelled.Add();
  broken_ = true;
  GiveUp();
  End(grpc::Status(grpc::StatusCode::CANCELLED, "the client gave the call up"));
}

void AnswerCall::WriteDone(bool ok) {
  const std::unique_ptr<Message> written = std::move(writing_);
  if (reactor_ == nullptr) return;
  if (!ok && !broken_) {
    broken_ = true;
    GiveUp();
    final_status_ = grpc::Status(grpc::StatusCode::CANCELLED, "the client is gone");
  } else if (ok && id_ != 0 && written->is_delta) {
    services_.pipeline.Taken(id_, written->choice, written->taken);
  }
  WriteNext();
}

AnswerCall::Message& AnswerCall::Append() {
  waiting_.push_back(std::make_unique<Message>());
  return *waiting_.back();
}

void AnswerCall::OnStarted(const Started& started) {
  ToProto(started, request_id_, *Append().response.mutable_started());
  AppendPrompt(started);
  WriteNext();
}

// In messages of a moderate size, whatever the prompt's.
void AnswerCall::AppendPrompt(const Started& started) {
  const std::string_view text = started.prompt_text;
  for (size_t begin = 0, end = 0; begin < text.size(); begin = end) {
    end = std::min(text.size(), begin + kPromptPartBytes);
    // Never within a character: bytes that continue one go with those before them.
    while (end < text.size() && (static_cast<unsigned char>(text[end]) & 0xC0) == 0x80) ++end;
    Append().response.mutable_prompt()->set_text(std::string(text.substr(begin, end - begin)));
  }
  const std::span<const TokenLogprob> logprobs(started.prompt_logprobs);
  for (size_t begin = 0; begin < logprobs.size(); begin += kPromptPartTokens) {
    const size_t count = std::min(kPromptPartTokens, logprobs.size() - begin);
    ToProto(logprobs.subspan(begin, count), begin, *Append().response.mutable_prompt());
  }
}

void AnswerCall::OnDelta(const Delta& delta) {
  // While a write is under way its followers of the same choice travel together.
  const bool joins =
      !waiting_.empty() && waiting_.back()->is_delta && waiting_.back()->choice == delta.choice;
  Message& message = joins ? *waiting_.back() : Append();
  message.is_delta = true;
  message.choice = delta.choice;
  message.taken = delta.first_index + delta.ids.size();
  AppendToProto(delta, *message.response.mutable_delta());
  WriteNext();
}

void AnswerCall::OnChoiceEnd(const ChoiceEnd& end) {
  QUIRE_CHECK(choices_left_ > 0);
  --choices_left_;
  ToProto(end, *Append().response.mutable_done());
  WriteNext();
}

void AnswerCall::OnFinished(const Usage& usage) {
  id_ = 0;
  if (choices_left_ > 0) {
    End(grpc::Status(grpc::StatusCode::INTERNAL,
                     "the answer ended before every choice had a finish reason"));
    return;
  }
  ToProto(usage, *Append().response.mutable_usage());
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
  if (context_ == nullptr || reactor_ == nullptr || error.retry_after_ms == 0) return;
  const uint32_t seconds = (error.retry_after_ms + 999) / 1000;
  context_->AddTrailingMetadata("retry-after", std::to_string(seconds));
  context_->AddTrailingMetadata("grpc-retry-pushback-ms", std::to_string(error.retry_after_ms));
}

void AnswerCall::End(grpc::Status status) {
  if (!final_status_) final_status_ = std::move(status);
  WriteNext();
}

void AnswerCall::WriteNext() {
  if (reactor_ == nullptr || writing_) return;
  if (!waiting_.empty() && !broken_) {
    writing_ = std::move(waiting_.front());
    waiting_.pop_front();
    reactor_->StartWrite(&writing_->response);
    return;
  }
  if (!final_status_) return;
  Reactor* reactor = std::exchange(reactor_, nullptr);
  reactor->Finish(*final_status_);
}

}  // namespace quire
