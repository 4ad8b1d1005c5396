// One streamed answer over gRPC: turns the pipeline's events into messages of a MessageWriter.
//
// Owners: its GrpcCall, and the work posted by it (shared_ptr in each); event loop only.
//
// Invariants:
// 1. The pipeline's request is cancelled when the client is gone before its end.
// 2. Outputs, ends and usage of one turn of the loop leave together: the call gets them at the end
//    of the turn, or with its own end.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "quire/v1/inference.pb.h"
#include "router/grpc/message_writer.h"
#include "router/grpc/services.h"

namespace quire {

class AnswerCall : public GrpcCallHandler,
                   public ResponseSink,
                   public std::enable_shared_from_this<AnswerCall> {
 public:
  AnswerCall(GrpcServices& services, std::shared_ptr<GrpcCall> call)
      : services_(services), call_(std::move(call)), writer_(*call_) {}
  ~AnswerCall() override;

  void OnCancelled() override;
  void OnTaken(uint64_t whose, uint64_t index) override;
  void OnDrained() override { writer_.Write(); }

  void OnStarted(const Started& started) override;
  void OnDelta(const Delta& delta) override;
  void OnChoiceEnd(const ChoiceEnd& end) override;
  void OnFinished(const Usage& usage) override;
  void OnError(const ApiError& error) override;

 protected:
  GrpcCall& call() const { return *call_; }
  const GrpcServices& services() const { return services_; }
  // `problem`: the reason why the request is refused. `joins_events`: as the client requested.
  void Begin(std::optional<ApiError> problem, GenerateRequest request, bool joins_events);

 private:
  using Writer = MessageWriter<v1::GenerateResponse>;

  // Fill(message, event) writes an event; into a message that has no event for which `apart` is so.
  template <class Apart, class Fill>
  void Tell(Apart apart, Fill fill);
  void AddPrompt(const Started& started);
  template <class Fill>
  void AddPromptPart(Fill fill);
  void AddDelta(const Delta& delta);
  void WriteAfterTurn();
  void End(const GrpcEnd& end);  // after what waits has been written

  GrpcServices& services_;
  const std::shared_ptr<GrpcCall> call_;
  Writer writer_;
  std::string request_id_;
  RequestId id_ = 0;
  uint32_t choices_left_ = 1;
  std::vector<uint64_t> told_;  // by choice: outputs below it were, or will be, reported as taken
  bool joins_events_ = false;
  bool write_posted_ = false;
  bool ended_ = false;
};

}  // namespace quire
