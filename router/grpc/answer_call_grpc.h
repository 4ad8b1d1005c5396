// One streamed answer over gRPC: what the pipeline says becomes messages of a CallWriter.
//
// Owners: its reactor and the work posted by it (shared_ptr in each), until the call has ended. All
// functions but the constructor and Written run on the event loop.
//
// Invariants:
// 1. The pipeline's request is cancelled when the client is gone before its end.
// 2. The call's context is touched only before the writer was told how the call ends.
#pragma once

#include <grpcpp/support/server_callback.h>

#include <memory>
#include <string>

#include "quire/v1/inference.pb.h"
#include "router/grpc/call_writer_grpc.h"
#include "router/grpc/inference_server.h"

namespace quire {

class AnswerCall final : public ResponseSink, public std::enable_shared_from_this<AnswerCall> {
 public:
  using Reactor = CallWriter::Reactor;

  AnswerCall(GrpcServices& services, Reactor* reactor)
      : services_(services), writer_(reactor, services.limits.taken_step) {}
  ~AnswerCall() override;

  // Of the call, which lives until the reactor has finished; before Begin and Refuse.
  void SetContext(grpc::CallbackServerContext* context) { context_ = context; }
  void Begin(GenerateRequest request);
  void Refuse(const ApiError& error);
  void Cancelled();
  // gRPC's threads: a write has ended.
  CallWriter::News Written(bool ok) { return writer_.WriteDone(ok); }
  // What came of it.
  void Heard(const CallWriter::News& news);

  void OnStarted(const Started& started) override;
  void OnDelta(const Delta& delta) override;
  void OnChoiceEnd(const ChoiceEnd& end) override;
  void OnFinished(const Usage& usage) override;
  void OnError(const ApiError& error) override;

 private:
  void AddPrompt(const Started& started);
  void End(grpc::Status status);  // after what waits has been written
  void TellWhenToComeBack(const ApiError& error);
  void GiveUp();  // cancels the pipeline's request

  GrpcServices& services_;
  CallWriter writer_;
  grpc::CallbackServerContext* context_ = nullptr;
  std::string request_id_;
  RequestId id_ = 0;
  uint32_t choices_left_ = 1;
  bool broken_ = false;  // the client is gone: nothing more is written
  bool ended_ = false;
};

}  // namespace quire
