// One streamed answer over gRPC: what the pipeline says becomes messages of a
// MessageWriter.
//
// Owners: its reactor and the work posted by it (shared_ptr in each), until the call has ended. All
// functions but the constructor and Written run on the event loop.
//
// Invariants:
// 1. The pipeline's request is cancelled when the client is gone before its end.
// 2. Outputs, ends and usage of one turn of the loop leave together: they are handed to the writer
//    at its end, or with the end of the call.
// 3. The call's context is touched only before the writer was told how the call ends.
#pragma once

#include <grpcpp/support/server_callback.h>

#include <memory>
#include <string>
#include <vector>

#include "quire/v1/inference.pb.h"
#include "router/grpc/inference_server.h"
#include "router/grpc/message_writer_grpc.h"

namespace quire {

class AnswerCall final : public ResponseSink, public std::enable_shared_from_this<AnswerCall> {
 public:
  using Writer =
      MessageWriter<grpc::ServerWriteReactor<v1::GenerateResponse>, v1::GenerateResponse>;
  using Reactor = Writer::Reactor;

  AnswerCall(GrpcServices& services, Reactor* reactor) : services_(services), writer_(reactor) {}
  ~AnswerCall() override;

  // Of the call, which lives until the reactor has finished; before Begin and Refuse.
  void SetContext(grpc::CallbackServerContext* context) { context_ = context; }
  void JoinEvents(bool joins) { joins_events_ = joins; }  // as the client asked; before Begin
  void Begin(GenerateRequest request);
  void Refuse(const ApiError& error);
  void Cancelled();
  // gRPC's threads: a write has ended.
  WriteNews Written(bool ok) { return writer_.WriteDone(ok); }
  // What came of it.
  void Heard(const WriteNews& news);

  void OnStarted(const Started& started) override;
  void OnDelta(const Delta& delta) override;
  void OnChoiceEnd(const ChoiceEnd& end) override;
  void OnFinished(const Usage& usage) override;
  void OnError(const ApiError& error) override;

 private:
  // Fill(message, event) writes an event; into a message that has no event for which `apart` is so.
  template <class Apart, class Fill>
  void Tell(Apart apart, Fill fill);
  void AddPrompt(const Started& started);
  template <class Fill>
  void AddPromptPart(Fill fill);
  void AddDelta(const Delta& delta);
  void WriteAfterTurn();
  void End(grpc::Status status);  // after what waits has been written
  void TellWhenToComeBack(const ApiError& error);
  void GiveUp();  // cancels the pipeline's request

  GrpcServices& services_;
  Writer writer_;
  grpc::CallbackServerContext* context_ = nullptr;
  std::string request_id_;
  RequestId id_ = 0;
  uint32_t choices_left_ = 1;
  std::vector<uint64_t> told_;  // by choice: outputs below it were told as taken, or will be
  bool joins_events_ = false;
  bool write_posted_ = false;
  bool broken_ = false;  // the client is gone: nothing more is written
  bool ended_ = false;
};

}  // namespace quire
