// The text side of the fleet's models: a token is a byte, and one in four is the first half of a
// character, whose text comes with the next token. So text lags behind tokens, as it does with real
// tokenizers, and who goes on with an answer has to know what was held back.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "tests/router/support/fake_text.h"

namespace quire::sim {

class SimText final : public ModelText {
 public:
  std::string Decode(std::span<const TokenId> ids, bool skip_special_tokens) const override {
    return fake_.Decode(ids, skip_special_tokens);
  }
  std::string_view TokenBytes(TokenId id) const override { return fake_.TokenBytes(id); }
  const GenerationSettings& generation() const override { return fake_.generation(); }
  std::unique_ptr<TextDecoder> NewDecoder(bool) const override {
    class Decoder final : public TextDecoder {
     public:
      explicit Decoder(const SimText& text) : text_(text) {}
      std::string Append(std::span<const TokenId> ids) override {
        std::string out;
        for (const TokenId id : ids) {
          out += std::exchange(held_, "");
          (id % 4 == 3 ? held_ : out) += text_.TokenBytes(id);
        }
        return out;
      }
      std::string Flush() override { return std::exchange(held_, ""); }

     private:
      const SimText& text_;
      std::string held_;
    };
    return std::make_unique<Decoder>(*this);
  }

 private:
  absl::StatusOr<std::vector<TokenId>> EncodeText(
      std::string_view text, bool special, const std::atomic<bool>* cancelled) const override {
    return fake_.Encode(text, special, cancelled);
  }
  absl::StatusOr<std::string> RenderChat(const ChatPrompt& prompt, int64_t now,
                                         const std::atomic<bool>* cancelled) const override {
    return fake_.Render(prompt, now, cancelled);
  }

  FakeText fake_;
};

}  // namespace quire::sim
