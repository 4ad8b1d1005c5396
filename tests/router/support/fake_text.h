// A model's text side in a few lines: a token is a byte, 256 begins a sequence, 257 ends it, and a
// test may add special tokens from 258 on.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "router/core/model_text.h"

namespace quire {

inline constexpr TokenId kFakeBos = 256;
inline constexpr TokenId kFakeEos = 257;
inline constexpr uint32_t kFakeVocab = 258;

class FakeText final : public ModelText {
 public:
  FakeText() { generation_.eos_token_ids = {kFakeEos}; }

  std::string Decode(std::span<const TokenId> ids, bool skip_special_tokens) const override {
    std::string text;
    for (const TokenId id : ids) {
      if (!skip_special_tokens || !IsSpecial(id)) text += TokenBytes(id);
    }
    return text;
  }
  std::unique_ptr<TextDecoder> NewDecoder(bool skip_special_tokens) const override {
    class Decoder final : public TextDecoder {
     public:
      Decoder(const FakeText& text, bool skip) : text_(text), skip_(skip) {}
      std::string Append(std::span<const TokenId> ids) override { return text_.Decode(ids, skip_); }
      std::string Flush() override { return ""; }

     private:
      const FakeText& text_;
      const bool skip_;
    };
    return std::make_unique<Decoder>(*this, skip_special_tokens);
  }
  bool IsSpecial(TokenId id) const override { return id >= static_cast<TokenId>(kFakeVocab); }
  std::optional<TokenId> TokenOf(std::string_view spelled) const override {
    for (size_t i = 0; i < specials.size(); ++i) {
      if (specials[i] == spelled) return static_cast<TokenId>(kFakeVocab + i);
    }
    return std::nullopt;
  }
  dialect::Detected Spoken() const override { return spoken; }
  std::string ChatProblem() const override { return chat_problem; }
  std::string_view TokenBytes(TokenId id) const override {
    static const std::string bytes = [] {
      std::string all;
      for (int i = 0; i < 256; ++i) all.push_back(static_cast<char>(i));
      return all;
    }();
    if (id >= 0 && id < 256) return std::string_view(bytes).substr(static_cast<size_t>(id), 1);
    const auto special = static_cast<size_t>(id) - kFakeVocab;
    return special < specials.size() ? std::string_view(specials[special]) : "";
  }
  const GenerationSettings& generation() const override { return generation_; }
  const TokenizerFacts& facts() const override { return shown; }
  size_t FewestTokens(std::string_view text, bool /*rendered*/) const override {
    return longest_token_bytes == 0 ? 0 : text.size() / longest_token_bytes;
  }
  size_t EncodeMemory(size_t text_bytes) const override { return work_bytes * text_bytes; }
  size_t RenderMemory(const ChatPrompt& prompt) const override {
    return 2 * work_bytes * prompt.messages_json.size();
  }
  std::vector<std::string> specials;
  dialect::Detected spoken;
  std::string chat_problem;
  TokenizerFacts shown;
  std::string generation_prompt;  // what a rendered chat ends with
  size_t longest_token_bytes = 0;
  size_t work_bytes = 0;    // of memory for each byte of a text; twice that of messages
  mutable int encodes = 0;  // calls so far; tests use one thread
  GenerationSettings& mutable_generation() { return generation_; }

 private:
  absl::StatusOr<std::vector<TokenId>> EncodeText(
      std::string_view text, bool add_special_tokens,
      const std::atomic<bool>* cancelled) const override {
    ++encodes;
    if (cancelled != nullptr && *cancelled) return absl::CancelledError("nobody waits for it");
    std::vector<TokenId> ids;
    if (add_special_tokens) ids.push_back(kFakeBos);
    for (const char c : text) ids.push_back(static_cast<unsigned char>(c));
    return ids;
  }
  absl::StatusOr<std::string> RenderChat(const ChatPrompt& prompt, int64_t,
                                         const std::atomic<bool>*) const override {
    if (prompt.messages_json == "[]") return InvalidArgument("a conversation needs a message");
    return "<chat>" + prompt.messages_json + generation_prompt;
  }

  GenerationSettings generation_;
};

inline std::vector<TokenId> FakeIds(std::string_view text) {
  return FakeText().Encode(text, false).value();
}

}  // namespace quire
