// The answer of one /v1/messages request: its blocks, the events of its stream, and the message as
// a whole.
//
// Owner: its call. Events are Anthropic's: message_start, ping, each block from start to stop,
// message_delta with the usage, message_stop.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "router/chat/answer_events.h"

namespace quire::messages {

struct Asked {
  // Thoughts travel in the signature of an empty block.
  bool omit_thoughts = false;
  uint32_t max_tokens = 0;
};

// What a block of thoughts is signed with; any signature is taken back.
inline constexpr std::string_view kSignature = "quire";

class Answer final : public AnswerEvents {
 public:
  explicit Answer(const Asked& asked) : asked_(asked) {}

  void Name(std::string_view request_id, int64_t unix_seconds) override;
  void Begin(const Started& started, std::string* out) override;
  void Add(const Delta& delta, std::string* out) override;
  void End(const ChoiceEnd& end) override { end_ = end; }
  void Finish(const Usage& usage, std::string* out) override;
  void Fail(const ApiError& error, std::string& out) override;
  std::string Whole() const override;
  size_t held_bytes() const override { return held_; }

 private:
  enum class Kind { kText, kThinking, kToolUse };
  struct Block {
    Kind kind;
    std::string text;  // or the arguments
    std::string id;
    std::string name;
  };

  void Open(Block block, std::string* out);
  void AddText(Kind kind, std::string_view text, std::string* out);
  void AddCall(const ToolCallDelta& call, std::string* out);
  void Close(std::string* out);
  std::string SignatureOf(const Block& block) const;
  void AppendBlock(const Block& block, std::string& out) const;
  std::string_view StopReason(const Usage& usage) const;

  const Asked asked_;
  std::string id_;
  std::string model_;
  std::vector<Block> blocks_;  // all of a whole answer; of a stream at most the open one
  size_t index_ = 0;           // of the open block
  bool open_ = false;
  uint32_t call_ = 0;
  bool called_ = false;
  ChoiceEnd end_;
  Usage usage_;
  std::string stop_reason_;
  size_t held_ = 0;
};

}  // namespace quire::messages
