// What the text tests share: files, the reference strings, the FNV hash of the fixtures, a tiny
// tokenizer.
//
// Values only; test code.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "common/text/tokenizer.h"

namespace quire::text {

// The file, or its first bytes; nothing if it can't be read.
std::optional<std::string> ReadFile(const std::string& path, size_t max_bytes = size_t{1} << 30);

std::string FixturePath(std::string_view name);            // tests/golden/text/name
std::string RealTokenizerDir(std::string_view tokenizer);  // .cache/npm-tokenizers/tokenizer

// The strings of strings.bin, long ones expanded.
std::vector<std::string> ReferenceStrings();

// What the reference made of each string: ids with special tokens and their decoded text, hashed.
struct ExpectedIds {
  uint32_t count;
  uint64_t ids_hash;
  uint64_t text_hash;
};
std::vector<ExpectedIds> ReadExpectedIds(std::string_view tokenizer);

// Expects that `tokenizer` gives those ids and that text for every reference string.
void ExpectReferenceIds(const Tokenizer& tokenizer, std::string_view name);

// What it takes to encode at least so many bytes of one text again and again.
uint64_t StepsOf(const Tokenizer& tokenizer, std::string_view unit, size_t bytes);

uint64_t Fnv1a(std::string_view bytes);
uint64_t Fnv1a(std::span<const int32_t> ids);

// A byte-level BPE tokenizer of 256 letters, a few merges and specials: tests that need no fetch
// use it. Letters have ids 0..255 in byte order; "he" 256, "ll" 257, "hell" 258, "hello" 259, " w"
// 260; specials from 261: <s> </s> <|user|> <pad>. With special tokens <s> is put first.
std::string TinyByteLevelJson();

// A SentencePiece-style tokenizer with byte fallback: <unk> <s> </s>, 256 byte tokens from id 3,
// then pieces. Its decoder strips one leading space.
std::string TinySentencePieceJson();

}  // namespace quire::text
