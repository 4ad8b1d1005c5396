// One completion or chat request over HTTP: starts a pipeline request for each prompt and turns the
// events that come back into one JSON answer or one stream of events.
//
// Owner: the HTTP session; event loop only.
//
// Invariants:
// 1. Until a stream has begun (the first output, or sse_commit_after), an error is a real HTTP
//    status.
// 2. After that, a stream ends in [DONE] only when every choice has ended with a reason; otherwise
//    in an error event.
// 3. Pipeline::Taken follows the bytes: an output counts as taken when its bytes went to the
//    network.
// 4. A whole answer above HttpLimits::background_write_bytes is written on a background thread.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "common/runtime/timer.h"
#include "router/http/answer_writer.h"
#include "router/http/api_request.h"
#include "router/http/event_stream.h"
#include "router/http/exchange.h"
#include "router/http/services.h"
#include "router/http/whole_answer.h"

namespace quire {

class GenerateCall final : public Call {
 public:
  // Answers at once (and returns nullptr) when the request is refused.
  static std::unique_ptr<Call> Begin(HttpServices& services, ApiKind kind, HttpRequest request,
                                     Exchange& exchange);
  ~GenerateCall() override;
  void OnWritten(uint64_t total) override;

 private:
  // The sink of one prompt.
  class Part final : public ResponseSink {
   public:
    Part(GenerateCall& call, size_t index) : call_(call), index_(index) {}
    void OnWaiting(const std::string& what) override { call_.PartWaits(what); }
    void OnStarted(const Started& started) override { call_.PartStarted(*this, started); }
    void OnDelta(const Delta& delta) override { call_.PartDelta(*this, delta); }
    void OnChoiceEnd(const ChoiceEnd& end) override { call_.PartChoiceEnd(*this, end); }
    void OnFinished(const Usage& usage) override { call_.PartFinished(*this, usage); }
    void OnError(const ApiError& error) override { call_.PartError(*this, error); }

    GenerateCall& call_;
    const size_t index_;
    RequestId id = 0;  // 0 once it has ended
    uint32_t choices_ended = 0;
    bool prompt_ids_sent = false;
    std::string echo_text;
    AnswerPrompt prompt;
  };
  struct ChoiceState {
    bool opened = false;  // the role, or what the client requested of the prompt, has been sent
    uint64_t tokens = 0;
  };
  // Outputs of a choice below `index` are in the first `bytes` of the body.
  struct Mark {
    uint64_t bytes;
    size_t part;
    uint32_t choice;
    uint64_t index;
  };
  struct ParseJob;

  GenerateCall(HttpServices& services, ApiKind kind, HttpRequest request, Exchange& exchange);
  void Parsed(std::optional<ApiError> problem, ApiRequest parsed);
  void Launch(uint64_t timeout_ms);
  void Refuse(const ApiError& error);

  void PartWaits(const std::string& what);
  void PartStarted(Part& part, const Started& started);
  void PartDelta(Part& part, const Delta& delta);
  void PartChoiceEnd(Part& part, const ChoiceEnd& end);
  void PartFinished(Part& part, const Usage& usage);
  void PartError(Part& part, const ApiError& error);
  void FailAll(const ApiError& error);

  uint32_t IndexOf(const Part& part, uint32_t choice) const;
  // What an echo adds before the first output of a choice.
  Delta EchoOf(const Part& part) const;
  // False: there is no memory for more of the answer, and the answer has ended with that error.
  bool HoldMore(size_t bytes);
  void OpenChoice(Part& part, uint32_t index);
  void SendChunk(Part& part, ChunkParts parts);
  void WriteOut();
  void ReleaseMarks();
  void FinishStream();
  void FinishWhole();
  void CancelAll();

  HttpServices& services_;
  Exchange& exchange_;
  HttpRequest http_;
  ApiKind kind_;
  ApiRequest api_;
  uint32_t choices_per_prompt_ = 1;
  std::shared_ptr<ParseJob> parse_job_;
  std::unique_ptr<AnswerWriter> writer_;
  std::vector<std::unique_ptr<Part>> parts_;
  std::vector<ChoiceState> choice_states_;   // streamed
  std::vector<AnswerChoice> whole_choices_;  // not streamed
  std::shared_ptr<MemoryHold> answer_hold_;  // of these
  WholeAnswerWriter whole_writer_;
  EventStream events_;
  std::vector<Mark> marks_;
  size_t marks_released_ = 0;  // of marks_, from the beginning on
  std::string scratch_;
  Usage usage_;
  size_t parts_live_ = 0;
  bool echo_ = false;
  size_t prompt_logprobs_ = 0;  // of all prompts so far, candidates included
  uint64_t written_bytes_ = 0;  // that the session reported
  uint64_t queued_bytes_ = 0;
  Timer release_timer_{services_.executor};  // of marks that no write will release
  bool begun_ = false;
  bool finished_ = false;
};

}  // namespace quire
