// The grammar that makes a model write tool calls in its own dialect: Lark, as llguidance reads it,
// made of the same description as the parser.
//
// Pure; any thread. Tools and their schemas are hostile input: what they hold appears as strings
// and schemas of Lark alone. Invariants:
//  1. What the grammar takes, the parser reads: all calls are whole, and none is past what is
//  asked.
//  2. Arguments that a dialect writes as JSON fit their schema. Where it writes values as bare text
//     or in a spelling of its own, names, required ones, types and enumerations hold; what a schema
//     says of a string's form, or of what lies deeper in a value of such a spelling, does not.
//  3. A thought comes before, ended by its own mark; where the prompt opened it, it has to end.
#pragma once

#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "common/dialect/dialect.h"
#include "common/dialect/lark.h"

namespace quire::dialect {

enum class CallCount : uint8_t {
  kAny,   // text, and any number of calls in it, or at most one
  kSome,  // calls alone, at least one
};

struct Forcing {
  const Dialect* dialect = nullptr;
  const Thoughts* thoughts = nullptr;  // null: no thought comes before
  bool thought_opened = false;
  CallCount count = CallCount::kSome;
  bool one = false;        // at most one call
  std::string_view named;  // the only function that may be called; empty: all
  // The id of a mark that comes as a special token; none: it is written as text.
  Lark::SpecialToken special;
};

// `tools`: as ToolTypes::FromJson takes them. INVALID_ARGUMENT: a tool cannot be written in this
// dialect, or the dialect's calls look like text (kAny).
absl::StatusOr<std::string> ForceCalls(const Forcing& forcing, std::string_view tools);

// An item of Lark, whose rules are added to `lark`: the thought that may come before an answer, or
// has to end; "" where there is none.
std::string ThoughtItem(const Forcing& forcing, Lark& lark);

// Whether its calls begin as other text does, so that no grammar can separate them.
bool BeginsAsText(const Dialect& dialect);

// Whether some tool asks for its schema to hold.
bool AnyStrict(std::string_view tools);

}  // namespace quire::dialect
