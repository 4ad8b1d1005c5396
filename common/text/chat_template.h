// A model's chat template: messages to prompt text, as `transformers` renders it.
//
// Owned by the object that loaded the text bundle; immutable once compiled, so any number of
// threads may render. The template comes from the model and is hostile input, and so are messages
// and tools.
//  1. The text equals that of apply_chat_template byte for byte (Jinja with trim_blocks and
//     lstrip_blocks, Python's spelling of values, json.dumps for tojson), or an error is returned.
//  2. Work and memory are bounded: instructions and bytes touched grow linearly with the input,
//     nesting and output have fixed limits. No template can hang or exhaust the process, and its
//     nesting is known before anything recursive reads it.
//  3. With a tokenizer, the content of messages never becomes a special token, whether or not the
//     template builds it from parts. What a template asks about a message (`in`, split, length,
//     ...) has the same answer. Added tokens that aren't special (`</think>`) are found in messages
//     as `transformers` does.
//  4. The clock is an argument: the same input always renders to the same text.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "common/text/tokenizer.h"

namespace quire::text {

inline constexpr size_t kMaxTemplateBytes = size_t{1} << 20;
inline constexpr int kMaxTemplateNesting = 200;  // statements, operators and brackets
inline constexpr size_t kMaxTemplateInputBytes = size_t{32} << 20;   // with tools and extras
inline constexpr size_t kMaxTemplateOutputBytes = size_t{64} << 20;  // the rendered text
// The most memory that Render uses while it works: for the call, for each byte of messages, tools
// and extras, and for each byte that json::Measure counts for their trees. Measured like
// kEncodeMemory, over four models' templates and eight shapes of messages: one long message takes 7
// bytes a byte, many short ones 25, a list of digits 108.
inline constexpr size_t kRenderMemory = size_t{1} << 20;
inline constexpr size_t kRenderMemoryPerByte = 8;
inline constexpr size_t kRenderMemoryPerTreeByte = 3;

struct RenderOptions {
  bool add_generation_prompt = true;
  bool continue_final_message = false;  // the text ends inside the last message
  int64_t now_unix_seconds = 0;         // what strftime_now shows, in UTC
  // Named special tokens as template variables: {"bos_token", "<s>"}, ...
  std::vector<std::pair<std::string, std::string>> special_tokens;
  std::string extra_json;  // an object of further template variables, or empty
  // Another thread sets it when no client waits for the text: the call ends soon, CANCELLED.
  const std::atomic<bool>* cancelled = nullptr;
  // Messages, tools and variables can't spell this tokenizer's special tokens: where they do, the
  // text is marked, and only EncodeOptions::marked reads the marks. Text without such places has no
  // marks.
  const Tokenizer* tokenizer = nullptr;
};

class ChatTemplate {
 public:
  // INVALID_ARGUMENT with the line of a syntax error; RESOURCE_EXHAUSTED over kMaxTemplateBytes and
  // kMaxTemplateNesting.
  static absl::StatusOr<std::unique_ptr<ChatTemplate>> Compile(std::string_view source);

  ~ChatTemplate();
  ChatTemplate(const ChatTemplate&) = delete;
  ChatTemplate& operator=(const ChatTemplate&) = delete;

  // Renders a JSON array of messages with an optional JSON array of tools (empty: none). Keys whose
  // value is null are dropped from each message, as apply_chat_template does. INVALID_ARGUMENT
  // carries the message of the template's raise_exception or why the input doesn't fit;
  // RESOURCE_EXHAUSTED names the limit that was reached.
  absl::StatusOr<std::string> Render(std::string_view messages_json, std::string_view tools_json,
                                     const RenderOptions& options) const;

 private:
  struct Impl;
  explicit ChatTemplate(std::unique_ptr<Impl> impl);

  std::unique_ptr<Impl> impl_;
};

}  // namespace quire::text
