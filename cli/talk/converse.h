// A conversation with a server, in the terminal or from a pipe.
//
// Blocking, on the calling thread.
#pragma once

#include <atomic>
#include <string>

#include "cli/ask.h"
#include "common/config/schema.h"
#include "common/json/json.h"

namespace quire::cli {

struct TalkSettings {
  const char* command = "chat";  // its name in errors
  std::string system;            // the first message; empty: none
  std::string history_file;      // empty: none is kept
  bool colours = true;           // on a terminal
  json::Object every;            // what each request says beside the conversation
};
// From NO_COLOR, TERM, XDG_STATE_HOME and HOME.
TalkSettings TalkSettingsFrom(const config::Environment& environment);

// INVALID_ARGUMENT where the server says that its model does not chat.
absl::Status CheckChats(const AskOptions& options, const std::atomic<bool>& cancelled);

// Until the input ends or /exit. Returns the command's exit code.
int Converse(const AskOptions& options, const TalkSettings& talk, std::atomic<bool>& interrupted);

// One question of a user, its answer printed as it comes.
int AskOnce(const AskOptions& options, const std::string& question, const TalkSettings& talk,
            const std::atomic<bool>& interrupted);

}  // namespace quire::cli
