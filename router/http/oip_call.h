// One /infer, /generate or /generate_stream request of the Open Inference Protocol over REST.
//
// Owner: the HTTP session; event loop only.
//
// Invariants:
// 1. Until a stream has begun (the first output, or sse_commit_after), an error is a real HTTP
//    status; after it the stream ends with a finish reason or in an error event.
// 2. Pipeline::Taken follows the bytes, as in GenerateCall.
// 3. A whole answer above HttpLimits::background_write_bytes is written on a background thread.
#pragma once

#include <deque>
#include <memory>
#include <string>

#include "common/runtime/timer.h"
#include "router/http/event_stream.h"
#include "router/http/exchange.h"
#include "router/http/services.h"
#include "router/http/whole_answer.h"
#include "router/oip/infer_json.h"

namespace quire {

enum class OipKind : uint8_t { kInfer, kGenerate, kGenerateStream };

class OipCall final : public Call, public ResponseSink {
 public:
  // Answers at once (and returns nullptr) when the request is refused.
  static std::unique_ptr<Call> Begin(HttpServices& services, OipKind kind, oip::ModelPath path,
                                     HttpRequest request, Exchange& exchange);
  ~OipCall() override;
  void OnWritten(uint64_t total) override;

  void OnStarted(const Started& started) override;
  void OnDelta(const Delta& delta) override;
  void OnChoiceEnd(const ChoiceEnd& end) override { answer_->Add(end); }
  void OnFinished(const Usage& usage) override;
  void OnError(const ApiError& error) override;

 private:
  struct ParseJob;
  // Outputs below `index` are in the first `bytes` of the body.
  struct Mark {
    uint64_t bytes;
    uint64_t index;
  };

  OipCall(HttpServices& services, OipKind kind, HttpRequest request, Exchange& exchange)
      : services_(services),
        exchange_(exchange),
        http_(std::move(request)),
        kind_(kind),
        answer_hold_(std::make_shared<MemoryHold>(services.pipeline.MemoryOf(http_.tenant.get()))),
        events_(services, exchange) {}
  void Parsed(std::optional<ApiError> problem, oip::GenerateBody body);
  void Refuse(const ApiError& error);
  void WriteEvent();
  void FinishWhole();
  void Stop();

  HttpServices& services_;
  Exchange& exchange_;
  HttpRequest http_;
  const OipKind kind_;
  std::shared_ptr<ParseJob> parse_job_;
  oip::GenerateBody body_;  // less what the pipeline was given
  std::unique_ptr<oip::InferAnswer> answer_;
  std::shared_ptr<MemoryHold> answer_hold_;  // of it, where it is not streamed
  WholeAnswerWriter whole_writer_;
  EventStream events_;
  RequestId id_ = 0;
  std::deque<Mark> marks_;
  uint64_t written_bytes_ = 0;
  Timer flush_timer_{services_.executor};  // of a step's outputs, at the end of their turn
  bool finished_ = false;
};

}  // namespace quire
