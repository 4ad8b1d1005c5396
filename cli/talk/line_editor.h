// Reads what a person writes: with editing and history on a terminal, plain lines from a pipe.
//
// Owner: one thread, which it blocks. libedit does the editing.
#pragma once

#include <atomic>
#include <string>

typedef struct editline EditLine;
typedef struct history History;

namespace quire::cli {

inline constexpr int kMaxHistoryEntries = 1000;
inline constexpr size_t kMaxMessageBytes = 1u << 20;  // of one message, of any number of lines

enum class ReadResult { kMessage, kInterrupted, kEnd, kTooLong };

class LineEditor {
 public:
  // `history_file` may be empty: none is kept. The file is the user's alone.
  LineEditor(std::string history_file, std::atomic<bool>& interrupted);
  ~LineEditor();  // writes the history
  LineEditor(const LineEditor&) = delete;

  bool is_terminal() const { return is_terminal_; }
  // A message: one line, lines that end in a backslash and the one behind them, or what stands
  // between two """.
  ReadResult Read(std::string& message);

 private:
  ReadResult ReadLine(const char* prompt, std::string& line);
  ReadResult ReadEdited(const char* prompt, std::string& line);
  ReadResult ReadPlain(std::string& line);

  const bool is_terminal_;
  const std::string history_file_;
  std::atomic<bool>& interrupted_;
  EditLine* edit_ = nullptr;  // nullptr: no terminal
  History* history_ = nullptr;
  const char* prompt_ = "";
  bool broken_off_ = false;  // by Ctrl-C, in the line that is being read

  static char* Prompt(EditLine* edit);
  static unsigned char BreakOff(EditLine* edit, int key);
};

}  // namespace quire::cli
