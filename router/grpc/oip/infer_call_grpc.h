// One ModelInfer call: a request, and its whole text in one response.
//
// Owners: its reactor and the work posted by it (shared_ptr in each), until the call has ended. All
// functions run on the event loop.
//
// Invariants:
// 1. The pipeline's request is cancelled when the client is gone before its end.
// 2. Context, response and reactor are touched only before Finish.
#pragma once

#include <grpcpp/server_context.h>
#include <grpcpp/support/server_callback.h>

#include <memory>

#include "inference/open_inference.pb.h"
#include "router/grpc/inference_server.h"
#include "router/oip/infer_answer.h"

namespace quire::oip {

class InferCall final : public ResponseSink, public std::enable_shared_from_this<InferCall> {
 public:
  InferCall(GrpcServices& services, grpc::ServerUnaryReactor* reactor,
            inference::ModelInferResponse* response)
      : services_(services), reactor_(reactor), response_(response) {}
  ~InferCall() override;

  // `problem`: it is refused.
  void Begin(grpc::CallbackServerContext& context, std::optional<ApiError> problem,
             InferRequest request);
  void Cancelled();

  void OnStarted(const Started& started) override { answer_->Add(started); }
  void OnDelta(const Delta& delta) override { answer_->Add(delta); }
  void OnChoiceEnd(const ChoiceEnd& end) override { answer_->Add(end); }
  void OnFinished(const Usage& usage) override;
  void OnError(const ApiError& error) override;

 private:
  void Finish(const grpc::Status& status);

  GrpcServices& services_;
  grpc::ServerUnaryReactor* reactor_;  // nullptr once it has been told to finish
  inference::ModelInferResponse* response_;
  grpc::CallbackServerContext* context_ = nullptr;
  InferRequest request_;
  std::unique_ptr<InferAnswer> answer_;
  RequestId id_ = 0;
};

}  // namespace quire::oip
