#include "router/chat/prompt.h"

#include <algorithm>

#include "common/utf8.h"
#include "common/wire/sampling.h"
#include "common/wire/values.h"

namespace quire {
namespace {

std::optional<ApiError> CheckSize(std::string_view field, size_t bytes,
                                  const RouterLimits& limits) {
  if (bytes <= limits.max_prompt_bytes) return std::nullopt;
  ApiError error = InvalidField(field, "has " + std::to_string(bytes) + " bytes; at most " +
                                           std::to_string(limits.max_prompt_bytes) + " are served");
  error.code = ApiCode::kTooLarge;
  return error;
}

// Charges `bytes` of work for the lifetime of this object.
class WorkMemory {
 public:
  WorkMemory(MemoryHold* hold, size_t bytes) : hold_(hold), bytes_(bytes) {}
  WorkMemory(const WorkMemory&) = delete;
  ~WorkMemory() {
    if (charged_) hold_->Resize(hold_->bytes() - bytes_);
  }
  // Call it once. An error where there is no memory.
  std::optional<ApiError> Charge(std::string_view field) {
    if (hold_ == nullptr) return std::nullopt;
    charged_ = hold_->TryResize(hold_->bytes() + bytes_);
    if (charged_) return std::nullopt;
    const MemoryAccount& refuser = hold_->refuser();
    const bool of_tenant = refuser.scope() == MemoryScope::kTenant;
    ApiError error = InvalidField(
        field, "making tokens of it may take " + std::to_string(bytes_) + " bytes of memory, and " +
                   (of_tenant ? "a tenant's" : "all clients'") + " requests may hold " +
                   std::to_string(refuser.limit()) +
                   (of_tenant ? " (--max-tenant-memory-bytes)" : " (--max-client-memory-bytes)"));
    const bool ever = bytes_ <= refuser.limit();
    error.code = ever ? ApiCode::kUnavailable : ApiCode::kTooLarge;
    if (ever) error.retry_after_ms = static_cast<uint32_t>(kTooManyLargeRequestsRetryMs);
    return error;
  }

 private:
  MemoryHold* const hold_;
  const size_t bytes_;
  bool charged_ = false;
};

// A text that has too many tokens, even at its lowest estimate. `rendered`: the template has
// written it.
std::optional<ApiError> CheckFit(const ModelText& model, std::string_view text, bool rendered,
                                 std::string_view field, const PromptOptions& options) {
  if (options.must_fit.empty() || options.truncate_prompt_tokens) return std::nullopt;
  const size_t fewest = model.FewestTokens(text, rendered);
  if (fewest < options.max_model_len) return std::nullopt;
  ApiError error = InvalidField(
      field, "has " + std::to_string(text.size()) + " bytes, which are " + std::to_string(fewest) +
                 " tokens or more, and the context of model " + options.must_fit + " holds " +
                 std::to_string(options.max_model_len) + " with the answer: send at most " +
                 std::to_string(options.max_model_len - 1));
  error.reason = kContextLengthExceeded;
  return error;
}

Result<std::vector<TokenId>> Encode(const ModelText& model, const TextPrompt& prompt,
                                    std::string_view field, const PromptOptions& options) {
  if (!IsValidUtf8(prompt.text)) return InvalidField(field, "is not valid UTF-8");
  WorkMemory memory(options.hold, model.EncodeMemory(prompt.text.size()));
  if (auto error = memory.Charge(field)) return *error;
  absl::StatusOr<std::vector<TokenId>> ids =
      model.Encode(prompt.text, prompt.add_special_tokens, options.cancelled);
  if (!ids.ok()) return ErrorFromStatus(Annotate(ids.status(), field), field);
  return *std::move(ids);
}

Result<std::string> Render(const ModelText& text, const ChatPrompt& chat,
                           const PromptOptions& options) {
  WorkMemory memory(options.hold, text.RenderMemory(chat));
  if (auto error = memory.Charge("messages")) return *error;
  absl::StatusOr<std::string> rendered =
      text.Render(chat, options.now_unix_seconds, options.cancelled);
  if (rendered.ok()) return *std::move(rendered);
  return ErrorFromStatus(Annotate(rendered.status(), "messages"), "messages");
}

Result<std::vector<TokenId>> EncodeChat(const ModelText& text, const ChatPrompt& chat,
                                        const PromptOptions& options) {
  const size_t bytes =
      chat.messages_json.size() + chat.tools_json.size() + chat.template_kwargs_json.size();
  if (auto error = CheckSize("messages", bytes, options.limits)) return *error;
  const Result<std::string> rendered = Render(text, chat, options);
  if (!rendered.ok()) return rendered.error();
  const std::string& whole = rendered.value();
  if (options.thoughts != nullptr) {
    *options.in_thought = dialect::EndsInThought(*options.thoughts, whole);
  }
  if (auto error = CheckFit(text, whole, true, "messages", options)) return *error;
  WorkMemory memory(options.hold, whole.size() + text.EncodeMemory(whole.size()));
  if (auto error = memory.Charge("messages")) return *error;
  absl::StatusOr<std::vector<TokenId>> ids =
      text.EncodeRendered(whole, chat.add_special_tokens, options.cancelled);
  if (!ids.ok()) return ErrorFromStatus(Annotate(ids.status(), "messages"), "messages");
  return *std::move(ids);
}

Result<std::vector<TokenId>> EncodeAny(const ModelText& text, const Prompt& prompt,
                                       const PromptOptions& options) {
  if (const auto* chat = std::get_if<ChatPrompt>(&prompt)) {
    if (chat->without_template.empty() || text.ChatProblem().empty()) {
      return EncodeChat(text, *chat, options);
    }
    return EncodeAny(text, TextPrompt{chat->without_template}, options);
  }
  const std::string_view field = PromptField(prompt);
  if (const auto* plain = std::get_if<TextPrompt>(&prompt)) {
    if (auto error = CheckSize(field, plain->text.size(), options.limits)) return *error;
    if (auto error = CheckFit(text, plain->text, false, field, options)) return *error;
    return Encode(text, *plain, field, options);
  }
  const std::vector<TokenId>& ids = std::get<TokenPrompt>(prompt).ids;
  if (auto error = CheckSize(field, ids.size() * sizeof(TokenId), options.limits)) return *error;
  for (const TokenId id : ids) {
    if (id >= 0 && static_cast<uint32_t>(id) < options.vocab_size) continue;
    return InvalidField(field, "token id " + std::to_string(id) +
                                   " is outside the vocabulary [0, " +
                                   std::to_string(options.vocab_size) + ")");
  }
  return ids;
}

}  // namespace

Result<std::vector<TokenId>> BuildPrompt(const ModelText& text, const Prompt& prompt,
                                         const PromptOptions& options) {
  const std::optional<int32_t>& truncate = options.truncate_prompt_tokens;
  if (truncate && (*truncate < -1 || *truncate == 0 ||
                   *truncate > static_cast<int64_t>(options.max_model_len))) {
    return InvalidField("truncate_prompt_tokens",
                        "must be -1 or in [1, " + std::to_string(options.max_model_len) + "]");
  }
  Result<std::vector<TokenId>> ids = EncodeAny(text, prompt, options);
  if (!ids.ok()) return ids;
  std::vector<TokenId>& list = ids.value();
  if (list.empty()) {
    return InvalidField(PromptField(prompt), "is empty; it needs at least one token");
  }
  for (const TokenId id : list) {
    if (id >= 0 && static_cast<uint32_t>(id) < options.vocab_size) continue;
    // The tokenizer knows more ids than the model has embeddings for.
    return InvalidField(PromptField(prompt),
                        "holds token id " + std::to_string(id) + ", which the model does not have");
  }
  if (truncate) {
    const size_t answer = std::clamp<size_t>(options.answer_tokens, 1, options.max_model_len - 1);
    const size_t keep =
        *truncate == -1 ? options.max_model_len - answer : static_cast<size_t>(*truncate);
    if (list.size() > keep) list.erase(list.begin(), list.end() - static_cast<ptrdiff_t>(keep));
  }
  return ids;
}

Result<std::vector<TokenId>> BuildPrediction(const ModelText& text, std::string_view prediction,
                                             size_t prompt_tokens, const PromptOptions& options) {
  constexpr std::string_view kField = "prediction";
  const size_t context = std::max<size_t>(options.max_model_len, prompt_tokens);
  const size_t room = std::min(context - prompt_tokens, kMaxPredictionIds);
  if (prediction.empty() || room == 0) return std::vector<TokenId>();
  if (auto error = CheckSize(kField, prediction.size(), options.limits)) return *error;
  if (!IsValidUtf8(prediction)) return InvalidField(kField, "is not valid UTF-8");
  // Nothing is made of what would be cut anyway.
  const size_t fewest = text.FewestTokens(prediction, false);
  if (fewest > room) {
    size_t end = static_cast<size_t>(static_cast<double>(prediction.size()) *
                                     static_cast<double>(room) / static_cast<double>(fewest));
    while (end > 0 && (static_cast<unsigned char>(prediction[end]) & 0xC0) == 0x80) --end;
    prediction = prediction.substr(0, end);
  }
  WorkMemory memory(options.hold, text.EncodePlainMemory(prediction));
  if (auto error = memory.Charge(kField)) return *error;
  absl::StatusOr<std::vector<TokenId>> ids = text.EncodePlain(prediction, options.cancelled);
  if (!ids.ok()) return ErrorFromStatus(Annotate(ids.status(), kField), kField);
  const auto unknown = std::find_if(ids->begin(), ids->end(), [&](TokenId id) {
    return id < 0 || static_cast<uint32_t>(id) >= options.vocab_size;
  });
  ids->resize(std::min(static_cast<size_t>(unknown - ids->begin()), room));
  return *std::move(ids);
}

Result<std::vector<std::vector<TokenId>>> BuildBadWords(const ModelText& text,
                                                        const std::vector<std::string>& words) {
  std::vector<std::vector<TokenId>> sequences;
  for (const std::string& word : words) {
    const std::string bare = word.substr(std::min(word.find_first_not_of(' '), word.size()));
    for (const std::string& form : {bare, " " + bare}) {
      Result<std::vector<TokenId>> ids = Encode(text, {form, false}, "bad_words", {});
      if (!ids.ok()) return ids.error();
      if (ids.value().empty() || ids.value().size() > kMaxBadWordTokens) {
        return InvalidField("bad_words", "a word has " + std::to_string(ids.value().size()) +
                                             " tokens; must be in [1, " +
                                             std::to_string(kMaxBadWordTokens) + "]");
      }
      const bool known =
          std::find(sequences.begin(), sequences.end(), ids.value()) != sequences.end();
      if (!known) sequences.push_back(std::move(ids.value()));
    }
  }
  return sequences;
}

}  // namespace quire
