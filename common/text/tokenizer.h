// Text to token ids and back, by the rules of one tokenizer.json.
//
// Owned by the object that loaded the model's text bundle. Immutable once made: any number of
// threads may call every method at once. Encoding a long prompt takes a while (linear time), so
// callers keep it off event loops.
//  1. Ids equal those of Hugging Face `tokenizers` for the same file (BPE models; others are
//     refused at load).
//  2. Encode needs time and memory linear in the text, up to a logarithm, for any text and file.
//     The steps of normalizers, expressions and added tokens are counted over the whole text, at
//     most kMaxStepsPerByte for each byte; the text that they add is at most kMaxGrowth times its
//     size. Above, the call ends in RESOURCE_EXHAUSTED with the part's name.
//  3. Decode(ids) equals what a Detokenizer emits for the same ids at any split.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

struct QtbTokenizer;

namespace quire::text {

inline constexpr size_t kMaxTokenizerJsonBytes = size_t{64} << 20;
inline constexpr size_t kMaxVocabSize = 2'000'000;  // also the bound of every token id
inline constexpr size_t kMaxEncodeBytes = size_t{32} << 20;
// The most memory that Encode uses while it works, beside the text: for the call, and for each
// byte. Measured as an allocator's peak over the tokenizers of five model families and sixteen
// kinds of text (bridge/src/memory.rs): plain text takes 1 to 6 bytes a byte, random characters 7
// to 33, a single long word up to 41. What a tokenizer's file adds to texts is within kMaxGrowth.
inline constexpr size_t kEncodeMemory = size_t{1} << 20;
inline constexpr size_t kEncodeMemoryPerByte = 42;
inline constexpr int kMaxStepsPerByte = 256;  // and 2^20 for the call
inline constexpr int kMaxGrowth = 32;         // times the text, and 4 KiB; at most 64 MiB

struct EncodeOptions {
  // The tokenizer's own tokens are put around the ids (a completion's beginning-of-sequence token);
  // rendered chats contain theirs in the text.
  bool add_special_tokens = false;
  // Another thread sets it when no client waits for the ids: the call ends soon, CANCELLED.
  const std::atomic<bool>* cancelled = nullptr;
  // The text is the output of ChatTemplate::Render for this tokenizer: special tokens are found
  // where the template has written them, and not where a message spells them.
  bool marked = false;
  // Receives the number of steps of the call (kMaxStepsPerByte).
  uint64_t* steps = nullptr;
};

// How pieces become text; filled at load, read by the Detokenizer.
struct DecodeRules {
  // Bytes that are not UTF-8 become U+FFFD: one per byte where bytes have their own tokens
  // (SentencePiece's byte fallback), otherwise one per maximal broken sequence (byte-level BPE), as
  // Hugging Face decoders do.
  bool replace_each_byte = false;
  int32_t strip_leading_spaces = 0;       // cut from the start of the text, at most
  bool strip_first_token_spaces = false;  // marks of the first token vanish
};

class Tokenizer {
 public:
  // Reads the text of a tokenizer.json of at most kMaxTokenizerJsonBytes. INVALID_ARGUMENT says
  // which part is malformed or not supported; RESOURCE_EXHAUSTED names the limit that the file
  // exceeds.
  static absl::StatusOr<std::unique_ptr<Tokenizer>> FromJson(std::string_view tokenizer_json);

  ~Tokenizer();
  Tokenizer(const Tokenizer&) = delete;
  Tokenizer& operator=(const Tokenizer&) = delete;

  // The ids of `text`, which must be UTF-8 of at most kMaxEncodeBytes.
  absl::StatusOr<std::vector<int32_t>> Encode(std::string_view text,
                                              const EncodeOptions& options) const;
  absl::StatusOr<std::vector<int32_t>> Encode(std::string_view text,
                                              bool add_special_tokens) const {
    return Encode(text, EncodeOptions{.add_special_tokens = add_special_tokens});
  }

  // A lower bound for the number of tokens that Encode returns for this text, found without
  // tokenising it: loading a file finds the most text that one token can represent. 0 where the
  // file's parts can drop text, or join any amount of it into one token. `marked` is as in
  // EncodeOptions.
  size_t FewestTokens(std::string_view text, bool marked = false) const;

  // The same ids computed by the reference library's own pipeline, which reads the whole file first
  // and has no linear bound. Tests and fuzzing compare Encode with it.
  static absl::StatusOr<std::vector<int32_t>> EncodeByReference(std::string_view tokenizer_json,
                                                                std::string_view text,
                                                                bool add_special_tokens);

  // The text of `ids`; ids that don't exist contribute nothing. Special tokens are left out if
  // requested.
  std::string Decode(std::span<const int32_t> ids, bool skip_special_tokens) const;

  // The largest id plus one: ids in [0, VocabSize()) may exist.
  int32_t VocabSize() const;

  bool Exists(int32_t id) const;
  bool IsSpecial(int32_t id) const;

  // The bytes that the token adds to a text (a space for a word-boundary mark, one byte for a byte
  // token). Need not be UTF-8. Empty for ids that don't exist. Lives as long as the tokenizer.
  std::string_view TokenBytes(int32_t id) const;

  // The token as the vocabulary spells it, byte-level letters and marks included.
  std::string IdToPiece(int32_t id) const;
  std::optional<int32_t> PieceToId(std::string_view piece) const;

  // Tokens that Encode(…, true) puts before and after the text.
  std::span<const int32_t> PrefixTokens() const;
  std::span<const int32_t> SuffixTokens() const;

  const DecodeRules& decode_rules() const;

  const QtbTokenizer* handle() const;  // for the other classes over the bridge

 private:
  struct Impl;
  explicit Tokenizer(std::unique_ptr<Impl> impl);

  std::unique_ptr<Impl> impl_;
};

}  // namespace quire::text
