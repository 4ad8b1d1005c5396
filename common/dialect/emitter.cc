#include "common/dialect/emitter.h"

#include "common/check.h"

namespace quire::dialect {
namespace {

constexpr size_t kMaxHeldSpace = 256;  // more white space than that is text

bool IsNewline(char c) { return c == '\n' || c == '\r'; }
bool IsSpace(char c) { return IsNewline(c) || c == ' ' || c == '\t'; }

}  // namespace

void Emitter::Add(Event::Kind kind, std::string_view text) {
  if (text.empty()) return;
  const int32_t call = kind == Event::Kind::kArguments ? calls_ - 1 : -1;
  if (!events_.empty() && events_.back().kind == kind && events_.back().call == call) {
    events_.back().text += text;
    return;
  }
  events_.push_back({kind, call, std::string(text), {}});
}

void Emitter::HoldContentSpace(char c) {
  space_ += c;
  if (space_.size() < kMaxHeldSpace) return;
  Add(Event::Kind::kContent, space_);
  space_.clear();
  has_content_ = true;
  after_mark_ = marked_ = false;
}

void Emitter::ReleaseContentSpace() {
  std::string_view held = space_;
  if (next_message_ && has_content_) held = "\n";
  next_message_ = false;
  if (marked_ && !has_content_) {
    const size_t newline = held.find_last_of(words_ ? " \t\r\n" : "\r\n");
    if (newline != std::string_view::npos) held.remove_prefix(newline + 1);
  }
  Add(Event::Kind::kContent, held);
  space_.clear();
  after_mark_ = marked_ = false;
  has_content_ = true;
}

void Emitter::Content(std::string_view text) {
  while (!text.empty()) {
    const char c = text.front();
    if (IsNewline(c) || (IsSpace(c) && (after_mark_ || !has_content_))) {
      HoldContentSpace(c);
      text.remove_prefix(1);
      continue;
    }
    if (!space_.empty() || marked_ || !has_content_ || next_message_) ReleaseContentSpace();
    const std::string_view line = text.substr(0, text.find_first_of("\r\n"));
    Add(Event::Kind::kContent, line);
    text.remove_prefix(line.size());
  }
}

void Emitter::Reasoning(std::string_view text) {
  while (!text.empty()) {
    const char c = text.front();
    if (IsNewline(c) || (words_ && IsSpace(c))) {
      if (thought_begun_) thought_space_ += c;
      text.remove_prefix(1);
      if (thought_space_.size() >= kMaxHeldSpace) {
        Add(Event::Kind::kReasoning, thought_space_);
        thought_space_.clear();
      }
      continue;
    }
    if (!thought_begun_ && has_thought_) Add(Event::Kind::kReasoning, "\n");
    thought_begun_ = has_thought_ = true;
    Add(Event::Kind::kReasoning, thought_space_);
    thought_space_.clear();
    const std::string_view line = text.substr(0, text.find_first_of(words_ ? " \t\r\n" : "\r\n"));
    Add(Event::Kind::kReasoning, line);
    text.remove_prefix(line.size());
  }
}

void Emitter::MarkSeen() { marked_ = after_mark_ = true; }

void Emitter::BeginThought(bool words) {
  MarkSeen();
  words_ = words;
  thought_begun_ = false;
}

void Emitter::EndThought() {
  MarkSeen();
  thought_space_.clear();
  thought_begun_ = false;
}

bool Emitter::BeginCall(std::string_view name, std::string_view id) {
  QUIRE_CHECK(!in_call_);
  EndThought();  // a call ends a thought that is open
  if (static_cast<size_t>(calls_) >= limits_.max_calls) {
    if (limit_.empty()) limit_ = "max_calls";
    return false;
  }
  events_.push_back({Event::Kind::kCallBegin, calls_, std::string(name), std::string(id)});
  ++calls_;
  in_call_ = true;
  overflow_ = false;
  argument_bytes_ = 0;
  return true;
}

void Emitter::Overflow(std::string_view limit) {
  overflow_ = true;
  if (limit_.empty()) limit_ = limit;
}

void Emitter::Arguments(std::string_view text) {
  QUIRE_CHECK(in_call_);
  const size_t room = overflow_ ? 0 : limits_.max_argument_bytes - argument_bytes_;
  const std::string_view taken = text.substr(0, room);
  Add(Event::Kind::kArguments, taken);
  argument_bytes_ += taken.size();
  if (taken.size() == text.size()) return;
  Overflow("max_argument_bytes");
  Content(text.substr(taken.size()));
}

void Emitter::EndCall(bool complete) {
  QUIRE_CHECK(in_call_);
  if (complete && argument_bytes_ == 0) Arguments("{}");
  events_.push_back({Event::Kind::kCallEnd, calls_ - 1, {}, {}});
  in_call_ = false;
  MarkSeen();
}

void Emitter::Finish() {
  if (in_call_) EndCall(false);
  if (!thought_space_.empty()) Add(Event::Kind::kReasoning, thought_space_);
  thought_space_.clear();
  if (!marked_ && !space_.empty()) Add(Event::Kind::kContent, space_);
  space_.clear();
}

}  // namespace quire::dialect
