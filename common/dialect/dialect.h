// How a family of models writes its tool calls and its thoughts: plain descriptions, one table.
//
// A description is constant data that any thread may read. The parser (parser.h) interprets it, and
// a grammar that forces the dialect can be made of the same fields. Invariants:
//  1. No mark of a dialect or of its thoughts is the beginning of another one.
//  2. A dialect is one constant in a file of its form, and one line of the table in table.cc.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace quire::dialect {

// A piece of markup. In token input a special one is found as a special token alone, never as text.
struct Mark {
  std::string_view text = {};
  bool special = false;

  constexpr bool empty() const { return text.empty(); }
};

// What follows a trigger.
enum class Form : unsigned char {
  kNone,        // no calls
  kJson,        // {"name": "f", "arguments": {…}}, or an array of these
  kNamedJson,   // f MARK {…}
  kEitherJson,  // kJson where `[` or `{` comes first, else kNamedJson
  kTagged,      // a name, then pairs of key and value between tags
  kNested,      // a name, then elements: of text, of further elements, or of <item>s
  kPythonic,    // [f(a='x'), g()]
  kBraced,      // f{k:v,…}, with strings between quote tokens
  kChannels,    // harmony: messages with a header each
};

enum class Where : unsigned char { kAnywhere, kWordStart, kLineStart };

// The mark behind which a call begins. A soft one is ordinary text unless a call follows; a kept
// one is the call's own first character.
struct Trigger {
  Mark mark;
  bool soft = false;
  bool kept = false;
  Where where = Where::kAnywhere;
};

// Keys of a JSON call.
struct JsonKeys {
  std::string_view name = "name";
  std::string_view arguments[2] = {"arguments", "parameters"};
  std::string_view id = {};
  bool needs_arguments = false;  // an object without them is no call
};

// NAME separator {…}: what ends the name, and what may be around it.
struct NamedKeys {
  Mark separator = {};
  Mark id = {};                  // between name and separator: the call's id
  std::string_view prefix = {};  // of the name, left out: "functions."
  bool numbered = false;         // name:INDEX; prefix, name and number are the call's id
  bool typed = false;            // "function" comes before the separator, the name after it
  bool bare_object = false;      // the separator may lack before `{`
};

// Values between tags. Of kNested, the key follows value_end too, with key_end behind it.
struct TaggedKeys {
  std::string_view name_end = {};  // empty: the line's end, a key or the call's end
  std::string_view key_open = {};
  std::string_view key_end = {};
  std::string_view value_open = {};  // empty: the value follows the key
  std::string_view value_end = {};
  bool typed = false;     // string="true|false" follows the key and decides
  bool newlines = false;  // one newline on each side of a value is markup
};

// What the ids of calls look like.
enum class CallIds : unsigned char {
  kAny,
  kNine,       // nine letters and digits, which its templates demand
  kFunctions,  // functions.NAME:INDEX, which its templates read
};

// What is around several calls: `open` and `close` are the ends of the example.
struct CallList {
  std::string_view open = {};
  std::string_view separator = {};
  std::string_view close = {};
  bool single = false;  // an answer has one call
};

struct Dialect {
  std::string_view name;      // as --tool-call-parser takes it
  std::string_view families;  // for people
  std::string_view example;   // one call as the model writes it
  std::string_view thoughts;  // the family's reasoning, a name of FindThoughts
  Form form = Form::kNone;
  std::span<const Trigger> triggers = {};
  std::span<const Mark> openers = {};  // may come before a trigger, and mean nothing else
  std::span<const Mark> closers = {};  // ends of calls and of lists of calls
  std::span<const Mark> dropped = {};  // mean nothing to the reader: ends of turns and of answers
  JsonKeys json = {};
  NamedKeys named = {};
  TaggedKeys tagged = {};
  Mark quote = {};             // kBraced: both sides of a string
  std::string_view tail = {};  // dropped with all up to the next `>`
  std::string_view part = {};  // a special token that is part of textual marks
  CallIds ids = CallIds::kAny;
  CallList list = {};
  // A chat template (or, without one, a tokenizer's added tokens) has all of these.
  std::span<const std::string_view> signs = {};
};

struct Thoughts {
  std::string_view name;  // as --reasoning-parser takes it
  std::string_view about;
  std::span<const Mark> opens = {};
  std::span<const Mark> closes = {};
  std::string_view label = {};  // dropped at the beginning of a thought: "thought\n"
  bool opened = false;          // the template opens the thought, whether it is said or not
  bool words = false;           // the marks are words of prose: blanks beside them are theirs
  bool at_start = false;        // the mark counts at the beginning of the answer alone
  bool repeats = false;         // a thought may come again
  bool lines = false;  // the closing mark has a newline in front and an empty line behind it
};

std::span<const Dialect* const> Dialects();
std::span<const Thoughts> AllThoughts();

// Null for an unknown name. Another server's name of the same dialect is known too.
const Dialect* FindDialect(std::string_view name);
const Thoughts* FindThoughts(std::string_view name);

// The marks that come as special tokens where the tokenizer has them; either may be null.
std::vector<std::string_view> SpecialMarks(const Dialect* dialect, const Thoughts* thoughts);

// "hermes, qwen3_coder, …", for errors and help.
std::string DialectNames();
std::string ThoughtsNames();

}  // namespace quire::dialect
