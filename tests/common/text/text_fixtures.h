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

namespace quire::text {

// The whole file, or nothing if it can't be read.
std::optional<std::string> ReadFile(const std::string& path);

std::string FixturePath(std::string_view name);            // tests/golden/text/name
std::string RealTokenizerDir(std::string_view tokenizer);  // .cache/npm-tokenizers/tokenizer

// The strings of strings.bin, long ones expanded.
std::vector<std::string> ReferenceStrings();

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
