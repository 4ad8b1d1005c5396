#include "cli/talk/converse.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>

#include "cli/commands.h"
#include "cli/format.h"
#include "cli/talk/conversation.h"
#include "cli/talk/line_editor.h"
#include "cli/talk/markdown.h"

namespace quire::cli {
namespace {

int Columns() {
  winsize size = {};
  return ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 ? size.ws_col : 80;
}

// Asks for the next answer and adds it; on a terminal it comes in colours.
absl::Status Answer(Conversation& conversation, const TalkSettings& talk,
                    const std::atomic<bool>& interrupted) {
  const bool terminal = isatty(STDOUT_FILENO) != 0;
  MarkdownPainter painter({.colours = talk.colours, .columns = Columns()});
  const AskOptions& options = conversation.options();
  json::Object body = talk.every;
  body["model"] = options.model;
  body["messages"] = conversation.Messages();
  body["stream"] = true;
  SetSampling(options, body);
  AnswerText answer(terminal && talk.colours, terminal ? &painter : nullptr);
  absl::Status asked = Ask(options, "/v1/chat/completions", body, interrupted, answer);
  std::fputs("\n", stdout);
  std::fflush(stdout);
  if (!asked.ok() && !absl::IsCancelled(asked)) return asked;
  conversation.Add(answer);
  return absl::OkStatus();
}

// False: the conversation is over.
bool Obeyed(Conversation& conversation, const std::string& line) {
  if (line == "/exit" || line == "/bye") return false;
  const absl::StatusOr<std::string> said = conversation.Obey(line);
  Show(said.ok() ? stdout : stderr, said.ok() ? *said : StatusMessage(said.status()) + "\n");
  return true;
}

}  // namespace

TalkSettings TalkSettingsFrom(const config::Environment& environment) {
  const auto value = [&](const char* name) {
    const auto found = environment.find(name);
    return found == environment.end() ? std::string() : found->second;
  };
  TalkSettings talk;
  talk.colours = value("NO_COLOR").empty() && value("TERM") != "dumb";
  std::string state = value("XDG_STATE_HOME");
  if (state.empty() && !value("HOME").empty()) state = value("HOME") + "/.local/state";
  if (!state.empty()) talk.history_file = state + "/quire/chat_history";
  return talk;
}

absl::Status CheckChats(const AskOptions& options, const std::atomic<bool>& cancelled) {
  QUIRE_ASSIGN_OR_RETURN(const std::vector<ServedName> names, ServedNames(options, cancelled));
  for (const ServedName& one : names) {
    if (one.name == options.model && !one.chat_problem.empty()) {
      return InvalidArgument(one.name + ": " + one.chat_problem +
                             "; `quire complete` asks it from here");
    }
  }
  return absl::OkStatus();
}

int Converse(const AskOptions& options, const TalkSettings& talk, std::atomic<bool>& interrupted) {
  const char* command = talk.command;
  if (const absl::Status chats = CheckChats(options, interrupted); !chats.ok()) {
    return Failed(command, chats);
  }
  LineEditor editor(talk.history_file, interrupted);
  if (editor.is_terminal()) {
    Show(stdout, options.model + " at " + options.url + ". /help lists commands, /exit leaves.\n");
  }
  Conversation conversation(options, talk.system);
  std::string line;
  while (true) {
    if (editor.is_terminal() && !conversation.Expects().empty()) {
      Show(stdout, "result of " + conversation.Expects() + "\n");
    }
    const ReadResult read = editor.Read(line);
    if (read == ReadResult::kEnd) break;
    if (read == ReadResult::kTooLong) {
      std::fputs("a message has at most 1 MiB\n", stderr);
      continue;
    }
    if (read == ReadResult::kInterrupted) {
      std::fputs("\n(Ctrl-D or /exit leaves)\n", stdout);
      continue;
    }
    const bool result = !conversation.Expects().empty();
    // A function's result may begin with a slash.
    const bool leaves = line == "/exit" || line == "/bye" || line == "/clear";
    if (leaves || (line.starts_with('/') && !result)) {
      if (!Obeyed(conversation, line)) break;
      continue;
    }
    if (!result && line.find_first_not_of(" \t\r\n") == std::string::npos) continue;
    if (!conversation.Hear(line)) continue;
    interrupted = false;
    const absl::Status answered = Answer(conversation, talk, interrupted);
    interrupted = false;
    if (answered.ok()) continue;
    const int code = Failed(command, answered);
    if (!editor.is_terminal()) return code;
    conversation.DropLast();
  }
  if (editor.is_terminal()) std::fputs("\n", stdout);
  return 0;
}

int AskOnce(const AskOptions& options, const std::string& question, const TalkSettings& talk,
            const std::atomic<bool>& interrupted) {
  absl::Status status = CheckChats(options, interrupted);
  Conversation conversation(options, talk.system);
  conversation.Add("user", question);
  if (status.ok()) status = Answer(conversation, talk, interrupted);
  if (interrupted) return 130;
  return status.ok() ? 0 : Failed(talk.command, status);
}

}  // namespace quire::cli
