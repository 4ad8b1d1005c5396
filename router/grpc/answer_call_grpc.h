// One streamed answer over gRPC: what the pipeline says becomes messages, written one at a time.
//
// Owners: its reactor and the work posted by it (shared_ptr in each), until the call has ended. All
// functions but the constructor run on the event loop.
//
// Invariants:
// 1. `reactor_` is touched only before Finish, which is called exactly once.
// 2. At most one write is under way; what waits behind it is bounded by the pipeline's windows.
#pragma once

#include <grpcpp/support/server_callback.h>

#include <deque>
#include <memory>
#include <optional>
#include <string>

#include "quire/v1/inference.pb.h"
#include "router/grpc/inference_server.h"

namespace quire {

class AnswerCall final : public ResponseSink, public std::enable_shared_from_this<AnswerCall> {
 public:
  using Reactor = grpc::ServerWriteReactor<v1::GenerateResponse>;

  AnswerCall(GrpcServices& services, Reactor* reactor) : services_(services), reactor_(reactor) {}
  ~AnswerCall() override;

  // Of the call, which lives until the reactor has finished; before Begin and Refuse.
  void SetContext(grpc::CallbackServerContext* context) { context_ = context; }
  void Begin(GenerateRequest request);
  void Refuse(const ApiError& error);
  void Cancelled();
  void WriteDone(bool ok);

  void OnStarted(const Started& started) override;
  void OnDelta(const Delta& delta) override;
  void OnChoiceEnd(const ChoiceEnd& end) override;
  void OnFinished(const Usage& usage) override;
  void OnError(const ApiError& error) override;

 private:
  struct Message {
    v1::GenerateResponse response;
    bool is_delta = false;
    uint32_t choice = 0;
    uint64_t taken = 0;  // the choice's outputs below this are in it
  };

  Message& Append();
  void AppendPrompt(const Started& started);
  void WriteNext();
  void End(grpc::Status status);  // after what waits has been written
  void TellWhenToComeBack(const ApiError& error);
  void GiveUp();  // cancels the pipeline's request

  GrpcServices& services_;
  Reactor* reactor_;
  grpc::CallbackServerContext* context_ = nullptr;
  std::string request_id_;
  RequestId id_ = 0;
  uint32_t choices_left_ = 1;
  std::deque<std::unique_ptr<Message>> waiting_;
  std::unique_ptr<Message> writing_;
  std::optional<grpc::Status> final_status_;
  bool broken_ = false;  // the client is gone: nothing more is written
};

}  // namespace quire
