// A conversation: its messages, its settings, and the commands that a person gives in it.
//
// A value, one thread. Files come from the user and may hold anything: sizes and kinds are checked.
#pragma once

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
  void Add(std::string_view role, std::string text);
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
  std::vector<std::pair<std::string, std::string>> messages_;  // role, text
};

}  // namespace quire::cli
