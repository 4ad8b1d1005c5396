// One request of an API whose answers have events or lines of their own (/v1/responses,
// /v1/messages, Ollama's): starts a pipeline request and hands what comes back to the API's
// AnswerEvents.
//
// Owner: the HTTP session; event loop only.
//
// Invariants:
// 1. Until a stream has begun (the first output, or sse_commit_after), an error is a real HTTP
//    status; after it the stream ends in the API's own last event, or in its error event.
// 2. Pipeline::Taken follows the bytes, as in GenerateCall.
// 3. What the answer holds is charged to the tenant before it grows further.
// 4. A whole answer above HttpLimits::background_write_bytes is written on a background thread.
#pragma once

#include <deque>
#include <memory>
#include <string>
#include <string_view>

#include "common/runtime/timer.h"
#include "router/chat/answer_events.h"
#include "router/http/event_stream.h"
#include "router/http/exchange.h"
#include "router/http/services.h"
#include "router/http/whole_answer.h"
#include "router/responses/store.h"

namespace quire {

// What sets one such API apart.
struct AgentApi {
  std::optional<ApiError> (*read)(std::string_view body, const RequestLimits& limits,
                                  const responses::Keeping& keeping, AgentRequest& out);
  // An error of the pipeline in the API's words.
  ApiError (*in_clients_words)(ApiError error);
  StreamForm form = {};
  // The served name of what a client calls the model; nullptr: the same.
  std::string (*served_name)(const HttpServices& services, const std::string& name) = nullptr;
  // Answers a request that asks nothing of its model (AgentRequest::only_load), at once or by the
  // call that it returns. Required where `read` makes such requests.
  std::unique_ptr<Call> (*only_load)(HttpServices& services, AgentRequest request,
                                     Exchange& exchange) = nullptr;
};

// The reader of an API that keeps no answers.
template <std::optional<ApiError> (*kRead)(std::string_view, const RequestLimits&, AgentRequest&)>
std::optional<ApiError> ReadAlone(std::string_view body, const RequestLimits& limits,
                                  const responses::Keeping&, AgentRequest& out) {
  return kRead(body, limits, out);
}

class AgentCall final : public Call, public ResponseSink {
 public:
  // Answers at once (and returns nullptr) when the request is refused.
  static std::unique_ptr<Call> Begin(HttpServices& services, const AgentApi& api,
                                     HttpRequest request, Exchange& exchange);
  ~AgentCall() override;
  void OnWritten(uint64_t total) override;

  void OnWaiting(const std::string& what) override;
  void OnStarted(const Started& started) override;
  void OnDelta(const Delta& delta) override;
  void OnChoiceEnd(const ChoiceEnd& end) override;
  void OnFinished(const Usage& usage) override;
  void OnError(const ApiError& error) override;

 private:
  struct ParseJob;
  // Outputs below `index` are in the first `bytes` of the body.
  struct Mark {
    uint64_t bytes;
    uint64_t index;
  };

  AgentCall(HttpServices& services, const AgentApi& api, HttpRequest request, Exchange& exchange);
  void Parsed(std::optional<ApiError> problem, AgentRequest parsed);
  void Refuse(const ApiError& error);
  bool Hold();  // false: there is no memory for more, and the answer has ended with that error
  void WriteOut();
  void FinishWhole();
  void ReleaseMarks();
  void Stop();
  void KeepLoaded(const AgentRequest& request);
  // The answer, which knows the time now.
  AnswerEvents& answer();
  std::string* out() { return stream_ ? &scratch_ : nullptr; }

  HttpServices& services_;
  Exchange& exchange_;
  HttpRequest http_;
  const AgentApi& api_;
  std::shared_ptr<ParseJob> parse_job_;
  std::unique_ptr<AnswerEvents> answer_;
  std::unique_ptr<Call> instead_;  // of a request that asks nothing of its model
  std::shared_ptr<MemoryHold> answer_hold_;
  WholeAnswerWriter whole_writer_;
  EventStream events_;
  RequestId id_ = 0;
  std::string scratch_;
  std::deque<Mark> marks_;
  uint64_t written_bytes_ = 0;  // that the session reported
  uint64_t queued_bytes_ = 0;
  Timer release_timer_{services_.executor};  // of marks that no write will release
  bool stream_ = false;
  bool ended_ = false;  // the choice has its finish reason
  bool finished_ = false;
};

// The tokens of a prompt of such an API, counted.
struct CountApi {
  std::optional<ApiError> (*read)(std::string_view body, const RequestLimits& limits,
                                  const responses::Keeping& keeping, AgentRequest& out);
  ApiError (*in_clients_words)(ApiError error);
  std::string_view kind;  // a member "object" of the answer; empty: it has none
};
std::unique_ptr<Call> BeginCount(HttpServices& services, const CountApi& api, HttpRequest request,
                                 Exchange& exchange);

}  // namespace quire
