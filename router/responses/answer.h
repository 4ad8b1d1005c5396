// The answer of one /v1/responses request: its items, the events of its stream, and the response as
// a whole.
//
// Owner: its call. Events are OpenAI's, in OpenAI's order, with sequence numbers from 0: created,
// in_progress, each item from added to done, and exactly one of completed, incomplete and failed.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "router/chat/answer_events.h"
#include "router/responses/store.h"
#include "router/responses/tools.h"

namespace quire::responses {

// What an answer repeats of its request.
struct Asked {
  std::string echo;  // members of the response, as JSON, each with a comma in front
  std::map<std::string, ToolName, std::less<>> names;
  bool pack_thoughts = false;  // as encrypted_content, for clients that drop the text
  Keeping keeping;             // of the whole answer; no store: it is not kept
  std::string items;           // the conversation before the answer, where the answer is kept
  size_t item_count = 0;
};

class Answer final : public AnswerEvents {
 public:
  explicit Answer(Asked asked);

  void Name(std::string_view request_id, int64_t unix_seconds) override;
  void Begin(const Started& started, std::string* out) override;
  void Add(const Delta& delta, std::string* out) override;
  void End(const ChoiceEnd& end) override { finish_reason_ = end.finish_reason; }
  void Finish(const Usage& usage, std::string* out) override;
  void Fail(const ApiError& error, std::string& out) override;
  std::string Whole() const override { return Response(); }
  size_t held_bytes() const override { return held_; }

 private:
  enum class Kind { kMessage, kReasoning, kCall, kCustomCall };
  enum class Status { kInProgress, kCompleted, kIncomplete };
  struct Item {
    Kind kind;
    std::string id;
    std::string text;      // of a message or a thought; the arguments of a call
    std::string logprobs;  // of a message, as JSON without brackets
    std::string call_id;
    ToolName tool;
    Status status = Status::kInProgress;
  };

  Item& Open(Kind kind, std::string* out);
  void OpenCall(const ToolCallDelta& call, std::string* out);
  void AddText(Kind kind, std::string_view text, const std::vector<TokenLogprob>& logprobs,
               std::string* out);
  void AddCall(const ToolCallDelta& call, std::string* out);
  void Close(Status status, std::string* out);
  void AppendDoneOfText(const Item& item, std::string& out);
  void AppendDoneOfCall(const Item& item, std::string& out);

  // The beginning of an event up to and including its sequence number.
  void AppendEvent(std::string_view type, std::string& out);
  void AppendPlace(bool with_content, std::string& out) const;
  void AppendLifecycle(std::string_view type, std::string& out);
  void AppendItem(const Item& item, std::string& out) const;
  void AppendOutput(std::string& out) const;
  void AppendResponse(std::string& out) const;
  std::string Response() const;

  Asked asked_;
  std::string request_id_;
  int64_t created_ = 0;
  std::string model_;
  std::string status_ = "in_progress";
  std::string error_ = "null";
  std::string incomplete_ = "null";
  std::string usage_ = "null";
  std::string finish_reason_;
  std::vector<Item> items_;  // the last one may be open
  bool open_ = false;
  uint32_t call_ = 0;  // the index of the call that is open
  uint64_t sequence_ = 0;
  size_t held_ = 0;
};

// The code of an error in a failed response, as OpenAI's clients know it.
std::string_view FailureCode(const ApiError& error);

}  // namespace quire::responses
