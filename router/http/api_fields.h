// Readers of single JSON fields, and the one table of all fields that the API knows.
//
// Private to router/http; pure.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "common/json/json.h"
#include "router/http/api_request.h"

namespace quire {

using FieldError = std::optional<ApiError>;

inline constexpr unsigned kInCompletion = 1;
inline constexpr unsigned kInChat = 2;
inline constexpr unsigned kInBoth = kInCompletion | kInChat;

// What is being gathered while the fields of one body are read.
struct ApiDraft {
  explicit ApiDraft(ApiRequest& target) : out(target) {}

  ApiRequest& out;
  GenerateRequest common;  // every prompt's request is a copy of it
  const json::Value* prompt = nullptr;
  const json::Value* messages = nullptr;
  ChatPrompt chat;
  bool add_special_tokens = true;
  bool add_special_tokens_set = false;
  bool logprobs_flag = false;  // chat: whether, not how many
  std::optional<int32_t> top_logprobs;
  std::optional<int32_t> max_completion_tokens;
};

struct ApiField {
  std::string_view name;
  unsigned where;
  FieldError (*read)(const json::Value& value, std::string_view name, ApiDraft& draft);
};

// The table, in no order that matters.
std::span<const ApiField> ApiFields();

FieldError ReadBool(const json::Value& value, std::string_view name, bool& out);
FieldError ReadFloat(const json::Value& value, std::string_view name, std::optional<float>& out);
FieldError ReadInt(const json::Value& value, std::string_view name, std::optional<int32_t>& out);
FieldError ReadString(const json::Value& value, std::string_view name, std::string& out);
// Names and the like: every prompt's request gets a copy, so that they must be short.
inline constexpr size_t kMaxNameBytes = 1024;
FieldError ReadName(const json::Value& value, std::string_view name, std::string& out);
// A list of token ids in [0, 2^31).
FieldError ReadTokenIds(const json::Value& value, std::string_view name, std::vector<TokenId>& out);
// The messages of a chat: roles checked, text parts joined, written back as JSON.
FieldError ReadMessages(const json::Value& value, std::string& out);

}  // namespace quire
