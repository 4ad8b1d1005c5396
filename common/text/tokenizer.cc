#include "common/text/tokenizer.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "common/text/bridge_call.h"
#include "common/text/detokenizer.h"

namespace quire::text {
namespace {

constexpr uint8_t kFlagExists = 1;
constexpr uint8_t kFlagSpecial = 2;

std::span<const int32_t> ToIds(const uint32_t* ids, size_t count) {
  // Ids are below kMaxVocabSize, so both readings of the 32 bits agree.
  return {reinterpret_cast<const int32_t*>(ids), count};
}

std::vector<int32_t> TakeIds(QtbIds ids) {
  std::vector<int32_t> result(ids.data, ids.data + ids.size);
  qtb_ids_free(ids);
  return result;
}

}  // namespace

struct Tokenizer::Impl {
  ~Impl() { qtb_tokenizer_free(handle); }

  uint8_t Flags(int32_t id) const {
    return id >= 0 && static_cast<size_t>(id) < tables.vocab_size ? tables.flags[id] : 0;
  }

  const QtbTokenizer* handle = nullptr;
  QtbTables tables = {};
  DecodeRules rules;
};

Tokenizer::Tokenizer(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Tokenizer::~Tokenizer() = default;

absl::StatusOr<std::unique_ptr<Tokenizer>> Tokenizer::FromJson(std::string_view tokenizer_json) {
  if (tokenizer_json.size() > kMaxTokenizerJsonBytes) {
    return absl::ResourceExhaustedError(absl::StrCat("tokenizer.json has ", tokenizer_json.size(),
                                                     " bytes; at most ", kMaxTokenizerJsonBytes,
                                                     " are read"));
  }
  auto impl = std::make_unique<Impl>();
  OwnedBytes error;
  ShareNewHandler();
  const int32_t code =
      qtb_tokenizer_new(ToSpan(tokenizer_json), kMaxVocabSize, &impl->handle, error.out());
  if (code != QTB_OK) return BridgeStatus(code, error);
  impl->tables = qtb_tokenizer_tables(impl->handle);
  impl->rules = {.replace_each_byte = impl->tables.byte_fallback != 0,
                 .strip_leading_spaces = static_cast<int32_t>(impl->tables.strip_leading_spaces),
                 .strip_first_token_spaces = impl->tables.strip_first_token_spaces != 0};
  return std::unique_ptr<Tokenizer>(new Tokenizer(std::move(impl)));
}

absl::StatusOr<std::vector<int32_t>> Tokenizer::Encode(std::string_view text,
                                                       const EncodeOptions& options) const {
  if (text.size() > kMaxEncodeBytes) {
    return absl::ResourceExhaustedError(absl::StrCat("the text has ", text.size(),
                                                     " bytes; at most ", kMaxEncodeBytes,
                                                     " can be tokenized at once"));
  }
  const QtbEncode encode = {.text = ToSpan(text),
                            .cancelled = ToFlag(options.cancelled),
                            .add_special_tokens = options.add_special_tokens,
                            .marked = options.marked,
                            .steps = options.steps};
  QtbIds ids = {nullptr, 0};
  OwnedBytes error;
  const int32_t code = qtb_encode(impl_->handle, &encode, &ids, error.out());
  if (code != QTB_OK) return BridgeStatus(code, error);
  return TakeIds(ids);
}

size_t Tokenizer::FewestTokens(std::string_view text, bool marked) const {
  return qtb_fewest_tokens(impl_->handle, ToSpan(text), static_cast<uint8_t>(marked));
}

absl::StatusOr<std::vector<int32_t>> Tokenizer::EncodeByReference(std::string_view tokenizer_json,
                                                                  std::string_view text,
                                                                  bool add_special_tokens) {
  QtbIds ids = {nullptr, 0};
  OwnedBytes error;
  const int32_t code = qtb_encode_by_reference(ToSpan(tokenizer_json), ToSpan(text),
                                               add_special_tokens, &ids, error.out());
  if (code != QTB_OK) return BridgeStatus(code, error);
  return TakeIds(ids);
}

const QtbTokenizer* Tokenizer::handle() const { return impl_->handle; }

std::string Tokenizer::Decode(std::span<const int32_t> ids, bool skip_special_tokens) const {
  Detokenizer detokenizer(*this, {.skip_special_tokens = skip_special_tokens});
  std::string text = detokenizer.Append(ids);
  text += detokenizer.Flush();
  return text;
}

int32_t Tokenizer::VocabSize() const { return static_cast<int32_t>(impl_->tables.vocab_size); }

bool Tokenizer::Exists(int32_t id) const { return (impl_->Flags(id) & kFlagExists) != 0; }

bool Tokenizer::IsSpecial(int32_t id) const { return (impl_->Flags(id) & kFlagSpecial) != 0; }

std::string_view Tokenizer::TokenBytes(int32_t id) const {
  if (!Exists(id)) return {};
  const QtbTables& tables = impl_->tables;
  const uint32_t begin = tables.offsets[id];
  return {reinterpret_cast<const char*>(tables.bytes) + begin, tables.offsets[id + 1] - begin};
}

std::string Tokenizer::IdToPiece(int32_t id) const {
  if (!Exists(id)) return {};
  OwnedBytes piece;
  OwnedBytes error;
  qtb_tokenizer_piece(impl_->handle, static_cast<uint32_t>(id), piece.out(), error.out());
  return std::string(piece.view());
}

std::optional<int32_t> Tokenizer::PieceToId(std::string_view piece) const {
  const int64_t id = qtb_tokenizer_id(impl_->handle, ToSpan(piece));
  if (id < 0) return std::nullopt;
  return static_cast<int32_t>(id);
}

std::span<const int32_t> Tokenizer::PrefixTokens() const {
  return ToIds(impl_->tables.prefix, impl_->tables.prefix_size);
}

std::span<const int32_t> Tokenizer::SuffixTokens() const {
  return ToIds(impl_->tables.suffix, impl_->tables.suffix_size);
}

const DecodeRules& Tokenizer::decode_rules() const { return impl_->rules; }

}  // namespace quire::text
