// What a parser has read, as deltas: text, thoughts and calls in their order.
//
// One parser owns it. Newlines beside a mark belong to the mark, so that they are held back until
// text follows. Invariants:
//  1. Joined deltas do not depend on how the input was cut.
//  2. Between BeginCall and EndCall every argument byte belongs to that call, and past a limit it
//     becomes content: no byte is dropped.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace quire::dialect {

// Of one answer.
struct Limits {
  size_t max_calls = 512;
  size_t max_argument_bytes = size_t{8} << 20;  // of one call
  size_t max_nesting = 64;                      // objects and arrays inside each other
  size_t max_head_bytes = 1024;                 // a name, a key, a header, a number
};

struct Event {
  enum class Kind : uint8_t { kContent, kReasoning, kCallBegin, kArguments, kCallEnd };
  Kind kind = Kind::kContent;
  int32_t call = -1;  // from 0
  std::string text;   // a delta; of kCallBegin the function's name
  std::string id;     // of kCallBegin: the id that the model wrote, if it did

  bool operator==(const Event&) const = default;
};

class Emitter {
 public:
  explicit Emitter(const Limits& limits) : limits_(limits) {}

  void Content(std::string_view text);
  void Reasoning(std::string_view text);
  // A mark is here in the content.
  void MarkSeen();
  // `words`: its marks are words of prose, so that blanks beside them belong to them too.
  void BeginThought(bool words = false);
  void EndThought();
  // Of harmony, where an answer has several messages: the next content is another message.
  void NextMessage() { next_message_ = true; }

  // False past max_calls: there is no such call.
  bool BeginCall(std::string_view name, std::string_view id);
  void Arguments(std::string_view text);
  // Ends the call under way; `complete`: as its dialect ends it. Then no arguments mean {}.
  void EndCall(bool complete);
  // Further arguments of this call are content.
  void Overflow(std::string_view limit);
  // No input follows.
  void Finish();

  bool in_call() const { return in_call_; }
  bool has_content() const { return has_content_; }
  int32_t calls() const { return calls_; }
  // Which limit was hit first; empty: none.
  std::string_view limit() const { return limit_; }
  const Limits& limits() const { return limits_; }
  std::vector<Event>& events() { return events_; }

 private:
  void Add(Event::Kind kind, std::string_view text);
  void ReleaseContentSpace();
  void HoldContentSpace(char c);

  const Limits limits_;
  std::vector<Event> events_;
  std::string_view limit_;
  std::string space_;          // held back
  std::string thought_space_;  // held back
  bool has_content_ = false;
  bool marked_ = false;      // a mark is beside what is held back
  bool after_mark_ = false;  // nothing but white space has followed a mark
  bool next_message_ = false;
  bool has_thought_ = false;    // in any thought
  bool thought_begun_ = false;  // in this one
  bool words_ = false;          // of the last thought
  bool in_call_ = false;
  bool overflow_ = false;
  int32_t calls_ = 0;
  size_t argument_bytes_ = 0;
};

}  // namespace quire::dialect
