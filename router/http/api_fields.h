// The one table of the fields that the OpenAI-shaped API knows, without the sampling parameters
// (router/chat/sampling_fields.h) and without what says what an answer must be
// (router/chat/constraint_fields.h).
//
// Private to router/http; pure.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "router/chat/constraint_fields.h"
#include "router/chat/json_fields.h"
#include "router/http/api_request.h"

namespace quire {

inline constexpr unsigned kInCompletion = 1;
inline constexpr unsigned kInChat = 2;
inline constexpr unsigned kInBoth = kInCompletion | kInChat;

// The values collected while the fields of one body are read.
struct ApiDraft {
  explicit ApiDraft(ApiRequest& target) : out(target) {}

  ApiRequest& out;
  GenerateRequest common;  // every prompt's request is a copy of it
  const json::Value* prompt = nullptr;
  const json::Value* messages = nullptr;
  const json::Value* tools = nullptr;
  const json::Value* functions = nullptr;
  ChatPrompt chat;
  ConstraintDraft constraint;
  bool add_special_tokens = true;
  bool add_special_tokens_set = false;
  bool logprobs_flag = false;  // chat: a boolean, not a number
  std::optional<int32_t> top_logprobs;
  std::optional<int32_t> max_completion_tokens;
};

struct ApiField {
  std::string_view name;
  unsigned where;
  FieldError (*read)(const json::Value& value, std::string_view name, ApiDraft& draft);
};

// The table, in any order. A field here takes precedence over a sampling parameter of the same
// name.
std::span<const ApiField> ApiFields();

}  // namespace quire
