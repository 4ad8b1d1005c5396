#include "cli/talk/line_editor.h"

#include <histedit.h>
#include <langinfo.h>
#include <sys/stat.h>
#include <unistd.h>

#include <clocale>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <iostream>

namespace quire::cli {
namespace {

constexpr char kPrompt[] = "> ";
constexpr char kFurther[] = ". ";
constexpr std::string_view kBlock = "\"\"\"";

// Characters of more than one byte are edited as one.
void UseUtf8() {
  std::setlocale(LC_CTYPE, "");
  if (std::strcmp(nl_langinfo(CODESET), "UTF-8") != 0) std::setlocale(LC_CTYPE, "C.UTF-8");
}

}  // namespace

LineEditor::LineEditor(std::string history_file, std::atomic<bool>& interrupted)
    : is_terminal_(isatty(STDIN_FILENO) != 0 && isatty(STDOUT_FILENO) != 0),
      history_file_(std::move(history_file)),
      interrupted_(interrupted) {
  if (!is_terminal_) return;
  UseUtf8();
  edit_ = el_init("quire", stdin, stdout, stderr);
  history_ = history_init();
  HistEvent event;
  history(history_, &event, H_SETSIZE, kMaxHistoryEntries);
  history(history_, &event, H_SETUNIQUE, 1);
  if (!history_file_.empty()) history(history_, &event, H_LOAD, history_file_.c_str());
  el_set(edit_, EL_CLIENTDATA, this);
  el_set(edit_, EL_PROMPT, &LineEditor::Prompt);
  el_set(edit_, EL_EDITOR, "emacs");
  el_set(edit_, EL_HIST, history, history_);
  el_set(edit_, EL_BIND, "^R", "em-inc-search-prev", nullptr);
  // Ctrl-C is a key of the line, and a signal only while an answer comes.
  el_set(edit_, EL_ADDFN, "quire-break-off", "gives the line up", &LineEditor::BreakOff);
  el_set(edit_, EL_BIND, "^C", "quire-break-off", nullptr);
  el_set(edit_, EL_SETTY, "-d", "-isig", nullptr);
}

LineEditor::~LineEditor() {
  if (history_ != nullptr && !history_file_.empty()) {
    std::error_code error;
    std::filesystem::create_directories(std::filesystem::path(history_file_).parent_path(), error);
    const mode_t before = umask(0077);
    HistEvent event;
    history(history_, &event, H_SAVE, history_file_.c_str());
    umask(before);
  }
  if (edit_ != nullptr) el_end(edit_);
  if (history_ != nullptr) history_end(history_);
}

char* LineEditor::Prompt(EditLine* edit) {
  LineEditor* self = nullptr;
  el_get(edit, EL_CLIENTDATA, &self);
  return const_cast<char*>(self->prompt_);
}

unsigned char LineEditor::BreakOff(EditLine* edit, int) {
  LineEditor* self = nullptr;
  el_get(edit, EL_CLIENTDATA, &self);
  self->broken_off_ = true;
  return CC_EOF;
}

ReadResult LineEditor::ReadEdited(const char* prompt, std::string& line) {
  prompt_ = prompt;
  broken_off_ = false;
  int count = 0;
  const char* text = el_gets(edit_, &count);
  // A signal that came while nothing was asked takes no line away: libedit may have read on.
  const bool interrupted = interrupted_.exchange(false);
  const bool whole = text != nullptr && count > 0;
  if (broken_off_ || (interrupted && !whole)) {
    el_reset(edit_);
    return ReadResult::kInterrupted;
  }
  if (!whole) return ReadResult::kEnd;
  line.assign(text, static_cast<size_t>(count));
  if (line.ends_with('\n')) line.pop_back();
  return ReadResult::kMessage;
}

ReadResult LineEditor::ReadPlain(std::string& line) {
  interrupted_ = false;
  std::cin.clear();
  if (std::getline(std::cin, line)) return ReadResult::kMessage;
  if (!interrupted_.exchange(false)) return ReadResult::kEnd;
  clearerr(stdin);
  return ReadResult::kInterrupted;
}

ReadResult LineEditor::ReadLine(const char* prompt, std::string& line) {
  return edit_ == nullptr ? ReadPlain(line) : ReadEdited(prompt, line);
}

ReadResult LineEditor::Read(std::string& message) {
  std::string line;
  ReadResult result = ReadLine(kPrompt, line);
  if (result != ReadResult::kMessage) return result;
  message = line;
  if (line.starts_with(kBlock)) {
    message = line.substr(kBlock.size());
    while (!message.ends_with(kBlock)) {
      result = ReadLine(kFurther, line);
      if (result != ReadResult::kMessage) return result;
      message += "\n" + line;
      if (message.size() > kMaxMessageBytes) return ReadResult::kTooLong;
    }
    message.resize(message.size() - kBlock.size());
  } else {
    while (message.ends_with('\\')) {
      message.back() = '\n';
      result = ReadLine(kFurther, line);
      if (result != ReadResult::kMessage) return result;
      message += line;
      if (message.size() > kMaxMessageBytes) return ReadResult::kTooLong;
    }
  }
  if (message.size() > kMaxMessageBytes) return ReadResult::kTooLong;
  if (history_ != nullptr && message.find_first_not_of(" \t\n") != std::string::npos) {
    HistEvent event;
    history(history_, &event, H_ENTER, message.c_str());
  }
  return ReadResult::kMessage;
}

}  // namespace quire::cli
