#include "router/chat/bundle_text.h"

#include <limits>
#include <map>
#include <sstream>
#include <utility>

#include "common/json/json.h"
#include "common/release.h"
#include "common/text/chat_template.h"
#include "common/text/detokenizer.h"
#include "common/text/text_bundle.h"
#include "common/text/tokenizer.h"
#include "common/wire/sampling.h"

namespace quire {
namespace {

// The error for a setting that would make a request fail.
template <class T, class Owner>
void LeaveOutUnusable(T Owner::*field, std::optional<T>& setting, GenerationSettings& settings) {
  if (!setting) return;
  SamplingParams params;
  params.*field = *setting;
  const absl::Status valid = ValidateSamplingParams(params, 1);
  if (valid.ok()) return;
  std::ostringstream said;
  said << StatusMessage(valid) << ", is " << *setting;
  settings.unusable.push_back(said.str());
  setting.reset();
}

GenerationSettings SettingsOf(const text::TextBundle& bundle) {
  const text::GenerationDefaults& from = bundle.generation;
  const auto number = [](const std::optional<double>& value) {
    return value ? std::optional<float>(static_cast<float>(*value)) : std::nullopt;
  };
  GenerationSettings to;
  to.temperature = number(from.temperature);
  to.top_p = number(from.top_p);
  to.min_p = number(from.min_p);
  to.repetition_penalty = number(from.repetition_penalty);
  to.eos_token_ids = bundle.eos_token_ids;
  LeaveOutUnusable(&SamplingParams::temperature, to.temperature, to);
  LeaveOutUnusable(&SamplingParams::top_p, to.top_p, to);
  LeaveOutUnusable(&SamplingParams::min_p, to.min_p, to);
  LeaveOutUnusable(&SamplingParams::repetition_penalty, to.repetition_penalty, to);
  constexpr int64_t kMaxTopK = std::numeric_limits<int32_t>::max();
  if (from.top_k && *from.top_k >= -1 && *from.top_k <= kMaxTopK) {
    to.top_k = static_cast<int32_t>(*from.top_k);
  } else if (from.top_k) {
    to.unusable.push_back("top_k: must be in [-1, " + std::to_string(kMaxTopK) +
                          "] (-1 and 0 are off), is " + std::to_string(*from.top_k));
  }
  return to;
}

TokenizerFacts FactsOf(const text::TextBundle& bundle) {
  // What `transformers` makes of a tokenizer.json.
  TokenizerFacts facts{.info = R"({"tokenizer_class":"PreTrainedTokenizerFast")"};
  for (const text::NamedToken& token : bundle.special_tokens) {
    facts.info += ',';
    json::AppendQuoted(token.name, facts.info);
    facts.info += ':';
    json::AppendQuoted(token.text, facts.info);
  }
  if (bundle.model_max_length > 0) {
    facts.info += ",\"model_max_length\":" + std::to_string(bundle.model_max_length);
  }
  if (const std::string* source = bundle.ChatTemplateSource(false)) {
    facts.chat_template.clear();
    json::AppendQuoted(*source, facts.chat_template);
    facts.info += ",\"chat_template\":" + facts.chat_template;
  } else {
    facts.info += ",\"chat_template\":null";
  }
  facts.info += '}';
  return facts;
}

class BundleDecoder final : public TextDecoder {
 public:
  BundleDecoder(const text::Tokenizer& tokenizer, bool skip_special_tokens)
      : detokenizer_(tokenizer, {.skip_special_tokens = skip_special_tokens}) {}
  std::string Append(std::span<const TokenId> ids) override { return detokenizer_.Append(ids); }
  std::string Flush() override { return detokenizer_.Flush(); }

 private:
  text::Detokenizer detokenizer_;
};

class BundleText final : public ModelText {
 public:
  absl::Status Read(const std::string& bytes) {
    QUIRE_ASSIGN_OR_RETURN(bundle_, text::ParseTextBundle(bytes));
    QUIRE_ASSIGN_OR_RETURN(tokenizer_, text::Tokenizer::FromJson(bundle_.tokenizer_json));
    Release(bundle_.tokenizer_json);
    QUIRE_ASSIGN_OR_RETURN(plain_, text::ChatTemplate::Compile("{{ messages[0].content }}"));
    for (const text::NamedTemplate& named : bundle_.chat_templates) {
      auto compiled = text::ChatTemplate::Compile(named.source);
      // A template over a limit is not a template of a model in use, so the model is not served at
      // all. A dialect that is not supported is an error for chats only; completions need no
      // template.
      if (absl::IsResourceExhausted(compiled.status())) {
        return Annotate(compiled.status(), "chat_template '" + named.name + "'");
      }
      templates_.try_emplace(named.source, std::move(compiled));
    }
    generation_ = SettingsOf(bundle_);
    facts_ = FactsOf(bundle_);
    return absl::OkStatus();
  }

  absl::StatusOr<std::vector<TokenId>> EncodeText(
      std::string_view text, bool add_special_tokens,
      const std::atomic<bool>* cancelled) const override {
    return tokenizer_->Encode(text, text::EncodeOptions{add_special_tokens, cancelled});
  }

  absl::StatusOr<std::string> RenderChat(const ChatPrompt& prompt, int64_t now_unix_seconds,
                                         const std::atomic<bool>* cancelled) const override {
    const std::string* source = bundle_.ChatTemplateSource(!prompt.tools_json.empty());
    if (source == nullptr) return InvalidArgument(ProblemOf(nullptr));
    text::RenderOptions options;
    options.add_generation_prompt = prompt.add_generation_prompt;
    options.continue_final_message = prompt.continue_final_message;
    options.now_unix_seconds = now_unix_seconds;
    options.cancelled = cancelled;
    for (const text::NamedToken& token : bundle_.special_tokens) {
      options.special_tokens.emplace_back(token.name, token.text);
    }
    options.extra_json = prompt.template_kwargs_json;
    options.tokenizer = tokenizer_.get();
    const absl::StatusOr<std::unique_ptr<text::ChatTemplate>>& compiled = templates_.at(*source);
    if (!compiled.ok()) return InvalidArgument(ProblemOf(source));
    return (*compiled)->Render(prompt.messages_json, prompt.tools_json, options);
  }

  std::string ChatProblem() const override {
    const std::string* source = bundle_.ChatTemplateSource(false);
    return source != nullptr && templates_.at(*source).ok() ? "" : ProblemOf(source);
  }

  absl::StatusOr<std::vector<TokenId>> EncodeRendered(
      std::string_view chat, bool add_special_tokens,
      const std::atomic<bool>* cancelled) const override {
    return tokenizer_->Encode(chat, text::EncodeOptions{.add_special_tokens = add_special_tokens,
                                                        .cancelled = cancelled,
                                                        .marked = true});
  }

  // A message that a template shows and nothing else: Render marks what it spells.
  absl::StatusOr<std::vector<TokenId>> EncodePlain(
      std::string_view text, const std::atomic<bool>* cancelled) const override {
    text::RenderOptions options;
    options.cancelled = cancelled;
    options.tokenizer = tokenizer_.get();
    QUIRE_ASSIGN_OR_RETURN(const std::string marked, plain_->Render(AsMessage(text), "", options));
    return EncodeRendered(marked, false, cancelled);
  }
  size_t EncodePlainMemory(std::string_view text) const override {
    ChatPrompt message;
    message.messages_json = AsMessage(text);
    return 2 * message.messages_json.size() + RenderMemory(message) + EncodeMemory(text.size());
  }

  size_t EncodeMemory(size_t text_bytes) const override {
    return text::kEncodeMemory + text_bytes * text::kEncodeMemoryPerByte;
  }
  size_t RenderMemory(const ChatPrompt& prompt) const override {
    size_t bytes = text::kRenderMemory;
    for (const std::string_view json :
         {std::string_view(prompt.messages_json), std::string_view(prompt.tools_json),
          std::string_view(prompt.template_kwargs_json)}) {
      bytes += json.size() * text::kRenderMemoryPerByte;
      bytes += json::Measure(json).tree_bytes * text::kRenderMemoryPerTreeByte;
    }
    return bytes;
  }

  std::string Decode(std::span<const TokenId> ids, bool skip_special_tokens) const override {
    return tokenizer_->Decode(ids, skip_special_tokens);
  }
  std::unique_ptr<TextDecoder> NewDecoder(bool skip_special_tokens) const override {
    return std::make_unique<BundleDecoder>(*tokenizer_, skip_special_tokens);
  }
  std::string_view TokenBytes(TokenId id) const override { return tokenizer_->TokenBytes(id); }
  size_t FewestTokens(std::string_view text, bool rendered) const override {
    return tokenizer_->FewestTokens(text, rendered);
  }
  bool IsSpecial(TokenId id) const override { return tokenizer_->IsSpecial(id); }
  std::optional<TokenId> TokenOf(std::string_view spelled) const override {
    return tokenizer_->PieceToId(spelled);
  }
  dialect::Detected Spoken() const override {
    const std::string* source = bundle_.ChatTemplateSource(true);
    return source == nullptr ? dialect::Detected() : dialect::Detect(*source, {});
  }
  const GenerationSettings& generation() const override { return generation_; }
  const TokenizerFacts& facts() const override { return facts_; }

 private:
  static std::string AsMessage(std::string_view text) {
    std::string json = "[{\"role\":\"user\",\"content\":";
    json::AppendQuoted(text, json);
    return json + "}]";
  }

  // Of a template that is absent (nullptr) or does not compile.
  std::string ProblemOf(const std::string* source) const {
    const std::string what =
        source == nullptr
            ? "the model has no chat template: it may be a base model, which continues texts"
            : "the model's chat template is not usable: " +
                  StatusMessage(templates_.at(*source).status());
    return what + "; use completions instead, or serve it with --chat-template";
  }

  text::TextBundle bundle_;  // without the tokenizer's text
  std::unique_ptr<text::Tokenizer> tokenizer_;
  std::unique_ptr<text::ChatTemplate> plain_;
  // By source.
  std::map<std::string, absl::StatusOr<std::unique_ptr<text::ChatTemplate>>> templates_;
  GenerationSettings generation_;
  TokenizerFacts facts_;
};

}  // namespace

absl::StatusOr<std::shared_ptr<const ModelText>> MakeBundleText(const std::string& bundle) {
  auto model = std::make_shared<BundleText>();
  QUIRE_RETURN_IF_ERROR(model->Read(bundle));
  return std::shared_ptr<const ModelText>(std::move(model));
}

}  // namespace quire
