// What a chat request says of tools and thoughts, and how calls appear in its answer: plain values,
// for every protocol.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace quire {

enum class ToolChoice : uint8_t { kAuto, kNone, kRequired, kNamed };

// The tools themselves are ChatPrompt::tools_json.
struct ToolUse {
  ToolChoice choice = ToolChoice::kAuto;
  std::string name;      // with kNamed
  bool parallel = true;  // false: at most one call in an answer
};

struct Thinking {
  std::optional<bool> enabled;     // unset: the template decides
  std::string effort;              // as the client spells it; empty: the template decides
  std::optional<uint32_t> budget;  // tokens of thoughts, after which they are ended
  std::string_view budget_field = "thinking_token_budget";  // what the client called it, a literal
  bool budget_firm = true;  // false: a model without thoughts is no error
};

// A piece of a tool call of one choice. Pieces of one call come in order. The first one has `id`
// and `name`, whole, and no arguments; they are empty after that.
struct ToolCallDelta {
  uint32_t index = 0;  // of the call in its choice, from 0
  std::string id;
  std::string name;
  std::string arguments;  // joined over all pieces: JSON text, or what the model wrote
};

}  // namespace quire
