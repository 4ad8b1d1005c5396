// A conversation: its messages, its settings, and the commands that a person gives in it.
//
// A value, one thread. Files come from the user and may hold anything: sizes and kinds are checked.
#pragma once

#include <deque>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "cli/ask.h"
#include "common/json/json.h"
#include "common/status.h"

namespace quire::cli {

inline constexpr size_t kMaxConversationBytes = 16u << 20;  // of a file
inline constexpr size_t kMaxMessages = 10'000;

class Conversation {
 public:
  Conversation(AskOptions options, std::string system)
      : options_(std::move(options)), system_(std::move(system)) {}

  const AskOptions& options() const { return options_; }
  AskOptions& options() { return options_; }
  void Add(std::string_view role, std::string_view text);
  // What the model said. Where it called functions, their results come next.
  void Add(const AnswerText& answer);
  // The function whose result the next line is; empty: the user speaks.
  std::string Expects() const { return calls_.empty() ? "" : calls_.front().name; }
  // A line of the user's, or a result. False: further results are to come.
  bool Hear(std::string_view line);
  void DropLast() { messages_.pop_back(); }
  size_t size() const { return messages_.size(); }
  // The system message, where there is one, and all others.
  json::Array Messages() const;

  // A line that begins with '/': what to print. INVALID_ARGUMENT says what would be right. /exit
  // and /bye are the caller's.
  absl::StatusOr<std::string> Obey(std::string_view line);

 private:
  absl::StatusOr<std::string> Set(std::string_view words);
  std::string Settings() const;
  absl::Status Save(const std::string& path) const;
  absl::Status Load(const std::string& path);

  AskOptions options_;
  std::string system_;
  std::vector<json::Object> messages_;
  std::deque<AnswerText::Call> calls_;  // without a result
};

}  // namespace quire::cli
