// System texts, messages and tools of a /v1/messages request become those of a chat.
//
// Pure; any thread. Input is hostile: an error names the block.
#pragma once

#include <cstddef>
#include <set>
#include <string>

#include "router/chat/conversation.h"
#include "router/chat/json_fields.h"

namespace quire::messages {

// A string, or a list of text blocks. A block that differs in every request of a client and says
// nothing to a model (Claude Code's billing header) is left out, so that prompts share their
// beginnings.
FieldError ReadSystem(const json::Value& value, Conversation& out);

// `referred`: the deferred tools that results of tools refer to.
using Names = std::set<std::string, std::less<>>;
FieldError ReadMessages(const json::Value& value, const RequestLimits& limits, Conversation& out,
                        Names& referred);

struct ToolSet {
  std::string json;  // a list of functions in the shape of OpenAI's chat; empty: none
  Names names;       // of these
  // Of tools that run at Anthropic or that its models alone know by heart, and of those that are
  // deferred until a result refers to them.
  Names left_out;
};
// A deferred tool is shown once it is referred to.
FieldError ReadTools(const json::Value& value, const Names& referred, ToolSet& out);
FieldError ReadToolChoice(const json::Value& value, const ToolSet& tools, ToolUse& out);

}  // namespace quire::messages
