#include "common/text/detokenizer.h"

namespace quire::text {
namespace {

constexpr std::string_view kReplacement = "\xEF\xBF\xBD";  // U+FFFD

// The size of the UTF-8 character that starts with this byte; 0: no character does.
int SizeFromFirstByte(unsigned char byte) {
  if (byte < 0x80) return 1;
  if (byte >= 0xC2 && byte <= 0xDF) return 2;
  if (byte >= 0xE0 && byte <= 0xEF) return 3;
  if (byte >= 0xF0 && byte <= 0xF4) return 4;
  return 0;
}

// Whether `byte` may follow as the second byte (the ranges exclude overlong forms, surrogates and
// what lies above U+10FFFF; table 3-7 of the Unicode standard).
bool MayBeSecond(unsigned char first, unsigned char byte) {
  switch (first) {
    case 0xE0:
      return byte >= 0xA0 && byte <= 0xBF;
    case 0xED:
      return byte >= 0x80 && byte <= 0x9F;
    case 0xF0:
      return byte >= 0x90 && byte <= 0xBF;
    case 0xF4:
      return byte >= 0x80 && byte <= 0x8F;
    default:
      return byte >= 0x80 && byte <= 0xBF;
  }
}

}  // namespace

Detokenizer::Detokenizer(const Tokenizer& tokenizer, DetokenizerOptions options)
    : tokenizer_(tokenizer),
      options_(options),
      spaces_to_strip_(tokenizer.decode_rules().strip_leading_spaces) {}

std::string Detokenizer::Append(std::span<const int32_t> ids) {
  std::string out;
  for (const int32_t id : ids) AppendToken(id, &out);
  return out;
}

std::string Detokenizer::Flush() {
  std::string out;
  GiveUpPending(&out);
  return out;
}

void Detokenizer::AppendToken(int32_t id, std::string* out) {
  if (!tokenizer_.Exists(id)) return;
  if (options_.skip_special_tokens && tokenizer_.IsSpecial(id)) return;
  const bool first = at_start_;
  at_start_ = false;
  const bool drop_spaces = first && tokenizer_.decode_rules().strip_first_token_spaces;
  for (const char c : tokenizer_.TokenBytes(id)) {
    if (c == ' ' && drop_spaces) continue;
    if (spaces_to_strip_ > 0) {
      if (c == ' ') {
        --spaces_to_strip_;
        continue;
      }
      spaces_to_strip_ = 0;
    }
    AppendByte(static_cast<unsigned char>(c), out);
  }
}

void Detokenizer::AppendByte(unsigned char byte, std::string* out) {
  if (pending_size_ > 0) {
    const bool continues =
        pending_size_ == 1 ? MayBeSecond(pending_[0], byte) : (byte >= 0x80 && byte <= 0xBF);
    if (continues) {
      pending_[pending_size_++] = byte;
      if (pending_size_ == needed_size_) {
        out->append(reinterpret_cast<const char*>(pending_), pending_size_);
        pending_size_ = 0;
      }
      return;
    }
    GiveUpPending(out);
  }
  const int size = SizeFromFirstByte(byte);
  if (size == 1) {
    out->push_back(static_cast<char>(byte));
  } else if (size == 0) {
    out->append(kReplacement);
  } else {
    pending_[0] = byte;
    pending_size_ = 1;
    needed_size_ = size;
  }
}

void Detokenizer::GiveUpPending(std::string* out) {
  if (pending_size_ == 0) return;
  const int count = tokenizer_.decode_rules().replace_each_byte ? pending_size_ : 1;
  for (int i = 0; i < count; ++i) out->append(kReplacement);
  pending_size_ = 0;
}

}  // namespace quire::text
