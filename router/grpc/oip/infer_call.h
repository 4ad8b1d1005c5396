// One ModelInfer call: a request, and its whole text in one response.
//
// Owners: its GrpcCall, and the work that it waits for; event loop only, except for Read.
//
// Invariants:
// 1. The pipeline's request is cancelled when the client is gone before its end.
// 2. An answer above GrpcEdgeLimits::background_write_bytes is written on a background thread.
#pragma once

#include <atomic>
#include <memory>
#include <optional>
#include <string>

#include "common/grpc/call.h"
#include "router/grpc/oip/whole_answer.h"
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

class InferCall final : public GrpcCallHandler,
                        public ResponseSink,
                        public std::enable_shared_from_this<InferCall> {
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
  void AnswerOffLoop(size_t held_bytes, const std::shared_ptr<WholeAnswer>& answer);
  void Written(const WholeAnswer& answer);

  GrpcServices& services_;
  const std::shared_ptr<GrpcCall> call_;
  InferRequest request_;
  std::unique_ptr<InferAnswer> answer_;
  std::string owner_;  // the tenant's name
  std::shared_ptr<MemoryAccount> memory_;
  const std::shared_ptr<std::atomic<bool>> cancelled_ = std::make_shared<std::atomic<bool>>(false);
  RequestId id_ = 0;
};

}  // namespace quire::oip
