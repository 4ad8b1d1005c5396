// A streamed answer in the terminal: its text as it comes, thoughts dimmed, calls of tools spelled
// out; and what of it the next request has to say.
//
// One owner. Text of servers is shown without its control characters (Show).
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "cli/talk/markdown.h"
#include "common/json/json.h"

namespace quire::cli {

class AnswerText {
 public:
  // `dim`: thoughts are dimmed; otherwise they are left out, since they would look like text.
  // `painter` shows the text in colours; nullptr: it is shown as it is.
  explicit AnswerText(bool dim, MarkdownPainter* painter = nullptr)
      : dim_(dim), painter_(painter) {}

  struct Call {
    std::string id, name, arguments;
  };

  // A chunk of a chat or a completion: shows what it adds.
  void Add(const json::Object& chunk);
  // After the last chunk.
  void Finish();

  const std::string& text() const { return text_; }
  const std::vector<Call>& calls() const { return calls_; }
  // The assistant's message, as the next request has it.
  json::Object Message() const;

 private:
  enum class Part { kNone, kText, kThought, kCall };
  void Turn(Part part);
  void AddCall(const json::Object& piece);

  const bool dim_;
  MarkdownPainter* const painter_;
  Part part_ = Part::kNone;
  std::string text_, thought_;
  std::vector<Call> calls_;
};

}  // namespace quire::cli
