// The answer of one request of /api/generate or /api/chat: lines of JSON, or one object.
//
// Owner: its call. A stream has an object for each piece, and a last one with "done": true, the
// counts and the durations. A call comes whole, its arguments as an object.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "router/chat/answer_events.h"
#include "router/ollama/request.h"

namespace quire::ollama {

class Answer final : public AnswerEvents {
 public:
  // `model` is the client's name for it.
  Answer(Kind kind, std::string model, std::optional<int32_t> logprobs)
      : kind_(kind), model_(std::move(model)), logprobs_(logprobs) {}

  void At(int64_t now) override { now_ = now; }
  void Name(std::string_view request_id, int64_t unix_seconds) override;
  void Wait() override { loaded_at_ = now_; }
  std::string KeepAlive() const override;
  void Begin(const Started& started, std::string* out) override;
  void Add(const Delta& delta, std::string* out) override;
  void End(const ChoiceEnd& end) override { end_ = end; }
  // Without Begin, all the time went into loading.
  void Finish(const Usage& usage, std::string* out) override;
  void Fail(const ApiError& error, std::string& out) override;
  std::string Whole() const override;
  size_t held_bytes() const override { return held_; }

 private:
  struct Call {
    std::string id, name, arguments;
  };
  struct Piece {
    std::string_view text, thought;
    std::string_view calls;     // JSON, without the brackets
    std::string_view logprobs;  // the same
  };

  void AddCall(const ToolCallDelta& call, std::string* out);
  // The call that was being written is whole.
  void CloseCall(std::string* out);
  void AppendHead(std::string& out) const;
  void AppendPiece(const Piece& piece, std::string& out) const;
  void AppendEnd(std::string& out) const;
  void AppendLogprobs(const std::vector<TokenLogprob>& logprobs, std::string& out) const;

  const Kind kind_;
  const std::string model_;
  const std::optional<int32_t> logprobs_;
  int64_t unix_seconds_ = 0;  // when it was asked for
  int64_t now_ = 0, asked_at_ = 0, loaded_at_ = 0, begun_at_ = 0, ended_at_ = 0;
  bool begun_ = false;
  std::optional<Call> call_;  // that is being written
  uint32_t call_index_ = 0;   // of the model
  size_t calls_ = 0;
  // Of a whole answer.
  std::string text_, thought_, calls_json_, logprobs_json_;
  ChoiceEnd end_;
  Usage usage_;
  size_t held_ = 0;
};

}  // namespace quire::ollama
