// What the router needs of a model's text side: prompts to tokens, tokens to text. Chat, stream and
// pipeline use this interface; router/chat implements it from a worker's text bundle, tests from a
// few lines.
//
// Shared (shared_ptr) by the pipeline's pool table, by running requests, and by work in the
// background. Immutable: any number of threads may call a ModelText. A TextDecoder belongs to one
// stream.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "common/dialect/detect.h"
#include "common/status.h"
#include "router/core/api.h"

namespace quire {

// Token ids to text as they come. All results together are the text of all ids, at any split.
class TextDecoder {
 public:
  virtual ~TextDecoder() = default;
  virtual std::string Append(std::span<const TokenId> ids) = 0;
  // The held-back bytes of an incomplete character, as final text.
  virtual std::string Flush() = 0;
};

// Sampling defaults of the model's generation settings; an unset one has no default.
struct GenerationSettings {
  std::optional<float> temperature, top_p, min_p, repetition_penalty;
  std::optional<int32_t> top_k;
  std::vector<TokenId> eos_token_ids;
  // A setting that the model requires, that no request may have, and that is left out above:
  // "field: the range, its value".
  std::vector<std::string> unusable;
};

// What clients may know of a model's tokenizer, as JSON that is written once.
struct TokenizerFacts {
  std::string info = "{}";             // an object with the fields of tokenizer_config.json
  std::string chat_template = "\"\"";  // the default chat template; an empty one: there is none
};

class ModelText {
 public:
  virtual ~ModelText() = default;
  // May take a while for a long text: call it off the event loop only. CANCELLED soon after another
  // thread has set `cancelled`, which may be null.
  absl::StatusOr<std::vector<TokenId>> Encode(std::string_view text, bool add_special_tokens,
                                              const std::atomic<bool>* cancelled = nullptr) const {
    return EncodeText(text, add_special_tokens, cancelled);
  }
  // The conversation as the model's chat template renders it. INVALID_ARGUMENT with the template's
  // message. CANCELLED as above.
  absl::StatusOr<std::string> Render(const ChatPrompt& prompt, int64_t now_unix_seconds,
                                     const std::atomic<bool>* cancelled = nullptr) const {
    return RenderChat(prompt, now_unix_seconds, cancelled);
  }
  // The ids of what Render returned. The content of messages is text there, whatever it contains.
  virtual absl::StatusOr<std::vector<TokenId>> EncodeRendered(
      std::string_view chat, bool add_special_tokens, const std::atomic<bool>* cancelled) const {
    return Encode(chat, add_special_tokens, cancelled);
  }
  // The ids of a text in which nothing is a special token, whatever it contains.
  virtual absl::StatusOr<std::vector<TokenId>> EncodePlain(
      std::string_view text, const std::atomic<bool>* cancelled) const {
    return Encode(text, false, cancelled);
  }
  virtual size_t EncodePlainMemory(std::string_view text) const {
    return EncodeMemory(text.size());
  }
  // The most memory that Encode and Render take while they work.
  virtual size_t EncodeMemory(size_t /*text_bytes*/) const { return 0; }
  virtual size_t RenderMemory(const ChatPrompt& /*prompt*/) const { return 0; }
  // A lower bound for the number of tokens of a text, or of what Render returned; 0: nothing is
  // known. Reads the bytes at most once.
  virtual size_t FewestTokens(std::string_view /*text*/, bool /*rendered*/) const { return 0; }
  virtual std::string Decode(std::span<const TokenId> ids, bool skip_special_tokens) const = 0;
  virtual std::unique_ptr<TextDecoder> NewDecoder(bool skip_special_tokens) const = 0;
  // The bytes that the token adds to a text; need not be UTF-8, empty for ids that don't exist.
  virtual std::string_view TokenBytes(TokenId id) const = 0;
  // Whether texts leave the token out when special tokens are skipped.
  virtual bool IsSpecial(TokenId /*id*/) const { return false; }
  // The token that is spelled like this; none: the tokenizer has no such token.
  virtual std::optional<TokenId> TokenOf(std::string_view /*spelled*/) const {
    return std::nullopt;
  }
  // Why the model does not chat, and what to do; empty: it does.
  virtual std::string ChatProblem() const { return ""; }
  // How the model writes tool calls and thoughts, as its chat template says.
  virtual dialect::Detected Spoken() const { return {}; }
  virtual const GenerationSettings& generation() const = 0;
  virtual const TokenizerFacts& facts() const {
    static const auto& none = *new TokenizerFacts();
    return none;
  }

 private:
  virtual absl::StatusOr<std::vector<TokenId>> EncodeText(
      std::string_view text, bool add_special_tokens, const std::atomic<bool>* cancelled) const = 0;
  virtual absl::StatusOr<std::string> RenderChat(const ChatPrompt& prompt, int64_t now_unix_seconds,
                                                 const std::atomic<bool>* cancelled) const = 0;
};

// Reads the bytes of a text bundle, which are hostile input. Called off the event loop.
using ModelTextFactory =
    std::function<absl::StatusOr<std::shared_ptr<const ModelText>>(const std::string& bundle)>;

}  // namespace quire
