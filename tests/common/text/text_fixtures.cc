#include "tests/common/text/text_fixtures.h"

#include <algorithm>
#include <cstring>
#include <fstream>

#include "common/check.h"
#include "common/json/json.h"
#include "gtest/gtest.h"

namespace quire::text {
namespace {

template <typename T>
T Take(std::string_view* rest) {
  T value;
  QUIRE_CHECK(rest->size() >= sizeof(T));
  std::memcpy(&value, rest->data(), sizeof(T));
  rest->remove_prefix(sizeof(T));
  return value;
}

// The letter that byte-level vocabularies write for a byte, in UTF-8.
std::string ByteLetter(int byte) {
  const auto printable = [](int b) {
    return (b >= 0x21 && b <= 0x7e) || (b >= 0xa1 && b <= 0xac) || (b >= 0xae && b <= 0xff);
  };
  int point = byte;
  if (!printable(byte)) {
    point = 256;
    for (int b = 0; b < byte; ++b) point += printable(b) ? 0 : 1;
  }
  if (point < 0x80) return std::string(1, static_cast<char>(point));
  return {static_cast<char>(0xC0 | (point >> 6)), static_cast<char>(0x80 | (point & 0x3F))};
}

std::string Quoted(std::string_view text) {
  std::string out;
  json::AppendQuoted(text, out);
  return out;
}

std::string AddedToken(int id, std::string_view content) {
  return "{\"id\":" + std::to_string(id) + ",\"content\":" + Quoted(content) +
         ",\"single_word\":false,\"lstrip\":false,\"rstrip\":false,\"normalized\":false,"
         "\"special\":true}";
}

}  // namespace

std::optional<std::string> ReadFile(const std::string& path, size_t max_bytes) {
  std::ifstream file(path, std::ios::binary | std::ios::ate);
  if (!file) return std::nullopt;
  std::string content(std::min<size_t>(file.tellg(), max_bytes), '\0');
  file.seekg(0);
  file.read(content.data(), static_cast<std::streamsize>(content.size()));
  return content;
}

std::string FixturePath(std::string_view name) {
  return QUIRE_SOURCE_DIR "/tests/golden/text/" + std::string(name);
}

std::string RealTokenizerDir(std::string_view tokenizer) {
  return QUIRE_SOURCE_DIR "/.cache/npm-tokenizers/" + std::string(tokenizer);
}

std::vector<std::string> ReferenceStrings() {
  const std::optional<std::string> file = ReadFile(FixturePath("strings.bin"));
  QUIRE_CHECK(file.has_value());
  std::string_view rest = *file;
  std::vector<std::string> strings;
  size_t short_count = 0;
  for (auto count = Take<uint32_t>(&rest); count > 0; --count) {
    if (Take<uint8_t>(&rest) == 0) {
      const auto size = Take<uint32_t>(&rest);
      strings.emplace_back(rest.substr(0, size));
      rest.remove_prefix(size);
      short_count = strings.size();
      continue;
    }
    auto state = Take<uint64_t>(&rest);
    const auto min_bytes = Take<uint32_t>(&rest);
    std::string text;
    while (text.size() < min_bytes) {
      state = state * 6364136223846793005u + 1442695040888963407u;
      text += strings[(state >> 33) % short_count];
    }
    strings.push_back(std::move(text));
  }
  return strings;
}

std::vector<ExpectedIds> ReadExpectedIds(std::string_view tokenizer) {
  const std::string file =
      ReadFile(FixturePath("ids_" + std::string(tokenizer) + ".bin")).value_or("");
  std::string_view rest = file;
  std::vector<ExpectedIds> expected;
  while (!rest.empty()) {
    ExpectedIds& next = expected.emplace_back();
    next.count = Take<uint32_t>(&rest);
    next.ids_hash = Take<uint64_t>(&rest);
    next.text_hash = Take<uint64_t>(&rest);
  }
  return expected;
}

void ExpectReferenceIds(const Tokenizer& tokenizer, std::string_view name) {
  const std::vector<std::string> strings = ReferenceStrings();
  const std::vector<ExpectedIds> expected = ReadExpectedIds(name);
  ASSERT_EQ(strings.size(), expected.size());
  ASSERT_GE(strings.size(), 2000u);
  int wrong = 0;
  for (size_t i = 0; i < strings.size() && wrong < 20; ++i) {
    const auto ids = tokenizer.Encode(strings[i], /*add_special_tokens=*/true);
    ASSERT_TRUE(ids.ok()) << ids.status();
    if (ids->size() != expected[i].count || Fnv1a(*ids) != expected[i].ids_hash) {
      ++wrong;
      ADD_FAILURE() << "ids of string " << i << " '" << strings[i].substr(0, 200)
                    << "': " << ids->size() << " tokens, " << expected[i].count
                    << " in the reference: " << testing::PrintToString(*ids).substr(0, 300);
    }
    const std::string text = tokenizer.Decode(*ids, /*skip_special_tokens=*/false);
    if (Fnv1a(text) != expected[i].text_hash) {
      ++wrong;
      ADD_FAILURE() << "decoded string " << i << " '" << strings[i].substr(0, 200) << "' to '"
                    << text.substr(0, 200) << "'";
    }
  }
}

uint64_t StepsOf(const Tokenizer& tokenizer, std::string_view unit, size_t bytes) {
  std::string text;
  while (text.size() < bytes) text += unit.substr(0, bytes - text.size());
  // The last character may have been cut.
  while (!text.empty() && (text.back() & 0xC0) == 0x80) text.pop_back();
  if (!text.empty() && (text.back() & 0x80) != 0) text.pop_back();
  uint64_t steps = 0;
  const auto ids = tokenizer.Encode(text, EncodeOptions{.steps = &steps});
  EXPECT_TRUE(ids.ok()) << ids.status();
  return steps;
}

uint64_t Fnv1a(std::string_view bytes) {
  uint64_t value = 0xCBF29CE484222325u;
  for (const char c : bytes) value = (value ^ static_cast<unsigned char>(c)) * 0x100000001B3u;
  return value;
}

uint64_t Fnv1a(std::span<const int32_t> ids) {
  return Fnv1a(
      std::string_view(reinterpret_cast<const char*>(ids.data()), ids.size() * sizeof(int32_t)));
}

std::string TinyByteLevelJson() {
  std::string vocab;
  for (int b = 0; b < 256; ++b) vocab += Quoted(ByteLetter(b)) + ":" + std::to_string(b) + ",";
  vocab += "\"he\":256,\"ll\":257,\"hell\":258,\"hello\":259,\"\u0120w\":260";
  const std::string specials = AddedToken(261, "<s>") + "," + AddedToken(262, "</s>") + "," +
                               AddedToken(263, "<|user|>") + "," + AddedToken(264, "<pad>");
  return R"({"version":"1.0","truncation":null,"padding":null,"added_tokens":[)" + specials +
         R"(],"normalizer":null,"pre_tokenizer":{"type":"ByteLevel","add_prefix_space":false,)"
         R"("trim_offsets":true,"use_regex":true},"post_processor":{"type":"TemplateProcessing",)"
         R"("single":[{"SpecialToken":{"id":"<s>","type_id":0}},)"
         R"({"Sequence":{"id":"A","type_id":0}}],)"
         R"("pair":[{"Sequence":{"id":"A","type_id":0}},{"Sequence":{"id":"B","type_id":1}}],)"
         R"("special_tokens":{"<s>":{"id":"<s>","ids":[261],"tokens":["<s>"]}}},)"
         R"("decoder":{"type":"ByteLevel","add_prefix_space":true,"trim_offsets":true,)"
         R"("use_regex":true},"model":{"type":"BPE","dropout":null,"unk_token":null,)"
         R"("continuing_subword_prefix":null,"end_of_word_suffix":null,"fuse_unk":false,)"
         R"("byte_fallback":false,"vocab":{)" +
         vocab + R"(},"merges":["h e","l l","he ll","hell o","Ġ w"]}})";
}

std::string TinySentencePieceJson() {
  std::string vocab = R"("<unk>":0,"<s>":1,"</s>":2)";
  constexpr char kDigits[] = "0123456789ABCDEF";
  for (int b = 0; b < 256; ++b) {
    vocab +=
        std::string(",\"<0x") + kDigits[b >> 4] + kDigits[b & 15] + ">\":" + std::to_string(3 + b);
  }
  int id = 259;
  for (const char* piece : {"▁", "a", "b", "h", "i", "▁h", "▁hi", "ab", "▁▁", "é"}) {
    vocab += ",\"" + std::string(piece) + "\":" + std::to_string(id++);
  }
  return R"({"version":"1.0","truncation":null,"padding":null,"added_tokens":[)" +
         AddedToken(0, "<unk>") + "," + AddedToken(1, "<s>") + "," + AddedToken(2, "</s>") +
         R"(],"normalizer":{"type":"Sequence","normalizers":[{"type":"Prepend","prepend":"▁"},)"
         R"({"type":"Replace","pattern":{"String":" "},"content":"▁"}]},"pre_tokenizer":null,)"
         R"("post_processor":null,"decoder":{"type":"Sequence","decoders":[{"type":"Replace",)"
         R"("pattern":{"String":"▁"},"content":" "},{"type":"ByteFallback"},{"type":"Fuse"},)"
         R"({"type":"Strip","content":" ","start":1,"stop":0}]},"model":{"type":"BPE",)"
         R"("dropout":null,"unk_token":"<unk>","continuing_subword_prefix":null,)"
         R"("end_of_word_suffix":null,"fuse_unk":true,"byte_fallback":true,"vocab":{)" +
         vocab + R"(},"merges":["▁ h","▁h i","a b","▁ ▁"]}})";
}

}  // namespace quire::text
