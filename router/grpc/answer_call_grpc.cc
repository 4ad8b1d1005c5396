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

AnswerCall::~AnswerCall() { QUIRE_CHECK(ended_ && id_ == 0); }

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
  broken_ = true;
  writer_.Break();
}

void AnswerCall::Cancelled() {
  if (ended_ || broken_) return;
  services_.counters.grpc_cancelled.Add();
  GiveUp();
  End(grpc::Status(grpc::StatusCode::CANCELLED, "the client gave the call up"));
}

void AnswerCall::Heard(const CallWriter::News& news) {
  if (news.taken && id_ != 0) services_.pipeline.Taken(id_, news.choice, *news.taken);
  if (!news.broken || broken_) return;
  GiveUp();
  End(grpc::Status(grpc::StatusCode::CANCELLED, "the client is gone"));
}

// Nothing is written yet: the first output follows at once, and they leave together.
void AnswerCall::OnStarted(const Started& started) {
  v1::GenerateResponse message;
  ToProto(started, request_id_, *message.mutable_started());
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
    v1::GenerateResponse message;
    message.mutable_prompt()->set_text(std::string(text.substr(begin, end - begin)));
    writer_.Add(std::move(message));
  }
  const std::span<const TokenLogprob> logprobs(started.prompt_logprobs);
  for (size_t begin = 0; begin < logprobs.size(); begin += kPromptPartTokens) {
    const size_t count = std::min(kPromptPartTokens, logprobs.size() - begin);
    v1::GenerateResponse message;
    ToProto(logprobs.subspan(begin, count), begin, *message.mutable_prompt());
    writer_.Add(std::move(message));
  }
}

void AnswerCall::OnDelta(const Delta& delta) {
  writer_.AddDelta(delta);
  writer_.Write();
}

void AnswerCall::OnChoiceEnd(const ChoiceEnd& end) {
  QUIRE_CHECK(choices_left_ > 0);
  --choices_left_;
  v1::GenerateResponse message;
  ToProto(end, *message.mutable_done());
  writer_.Add(std::move(message));
  if (choices_left_ > 0) writer_.Write();  // else the end of the call follows at once
}

void AnswerCall::OnFinished(const Usage& usage) {
  id_ = 0;
  if (choices_left_ > 0) {
    End(grpc::Status(grpc::StatusCode::INTERNAL,
                     "the answer ended before every choice had a finish reason"));
    return;
  }
  v1::GenerateResponse message;
  ToProto(usage, *message.mutable_usage());
  writer_.Add(std::move(message));
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
