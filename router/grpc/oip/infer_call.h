// One ModelInfer call: a request, and its whole text in one response.
//
// Owner: its GrpcCall; event loop only, except for Read.
//
// Invariants:
// 1. The pipeline's request is cancelled when the client is gone before its end.
#pragma once

#include <memory>
#include <optional>

#include "common/grpc/call.h"
#include "router/grpc/services.h"
#include "router/oip/infer_answer.h"

namespace quire::oip {

struct ReadRequest {
  std::shared_ptr<MemoryHold> hold;  // of the request, until the pipeline has it
  std::optional<ApiError> problem;   // it is refused
  InferRequest request;
};
// Any thread: credentials, the message, and the call's metadata. nullopt: the bytes are no message.
std::optional<ReadRequest> ReadInferMessage(const GrpcServices& services, const GrpcCallHead& head,
                                            std::string_view bytes, Answering answering);

class InferCall final : public GrpcCallHandler, public ResponseSink {
 public:
  InferCall(GrpcServices& services, std::shared_ptr<GrpcCall> call)
      : services_(services), call_(std::move(call)) {}
  ~InferCall() override;

  Step Read(std::string_view message) override;
  void OnCancelled() override;

  void OnStarted(const Started& started) override { answer_->Add(started); }
  void OnDelta(const Delta& delta) override {
    answer_->Add(delta);
    (void)call_->HoldAnswers(
        answer_->held_bytes());  // an answer that finds no memory ends the call
  }
  void OnChoiceEnd(const ChoiceEnd& end) override { answer_->Add(end); }
  void OnFinished(const Usage& usage) override;
  void OnError(const ApiError& error) override;

 private:
  void Begin(ReadRequest read);

  GrpcServices& services_;
  const std::shared_ptr<GrpcCall> call_;
  InferRequest request_;
  std::unique_ptr<InferAnswer> answer_;
  RequestId id_ = 0;
};

}  // namespace quire::oip
