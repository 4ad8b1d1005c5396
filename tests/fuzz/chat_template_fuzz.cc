// Fuzzes chat templates and the messages that they render: whatever comes in, a status or a text of
// bounded size comes out, and the same twice. With a tokenizer, what messages say never becomes one
// of its special tokens, and encoding loses nothing of the text.
//
// The input is a template, a zero byte, and messages in JSON. Without a zero byte the messages are
// fixed.
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include "common/text/chat_template.h"
#include "common/text/tokenizer.h"

namespace {

using quire::text::RenderOptions;
using quire::text::Tokenizer;

void Require(bool condition) {
  if (!condition) std::abort();
}

// JSON's spelling of the letter that stands for a byte in a byte-level vocabulary.
std::string Letter(int byte, int& next) {
  const bool printable =
      (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte <= 0xAC) || byte >= 0xAE;
  char spelling[16];
  std::snprintf(spelling, sizeof(spelling), "\\u%04x", printable ? byte : next++);
  return spelling;
}

// A token for each byte, which loses nothing, and special tokens <|user|>, </s> and [END].
std::string TokenizerJson() {
  std::string vocab;
  int next = 256;
  for (int byte = 0; byte < 256; ++byte) {
    vocab += (byte == 0 ? "\"" : ",\"") + Letter(byte, next) + "\":" + std::to_string(byte);
  }
  std::string added;
  int id = 256;
  for (const char* const token : {"<|user|>", "</s>", "[END]"}) {
    added += (id == 256 ? "{\"id\":" : ",{\"id\":") + std::to_string(id) + ",\"content\":\"" +
             token +
             R"(","single_word":false,"lstrip":false,"rstrip":false,"normalized":false,)"
             R"("special":true})";
    ++id;
  }
  return R"({"version":"1.0","truncation":null,"padding":null,"added_tokens":[)" + added +
         R"(],"normalizer":null,"pre_tokenizer":{"type":"ByteLevel","add_prefix_space":false,)"
         R"("trim_offsets":true,"use_regex":true},"post_processor":null,"decoder":{)"
         R"("type":"ByteLevel","add_prefix_space":true,"trim_offsets":true,"use_regex":true},)"
         R"("model":{"type":"BPE","dropout":null,"unk_token":null,)"
         R"("continuing_subword_prefix":null,"end_of_word_suffix":null,"fuse_unk":false,)"
         R"("byte_fallback":false,"vocab":{)" +
         vocab + R"(},"merges":[]}})";
}

// Marks are noncharacters, U+FDD0 to U+FDEF.
std::string Unmarked(std::string_view text) {
  std::string out;
  while (!text.empty()) {
    const bool mark = text.size() >= 3 && text.starts_with("\xEF\xB7") &&
                      static_cast<uint8_t>(text[2]) >= 0x90 &&
                      static_cast<uint8_t>(text[2]) <= 0xAF;
    if (!mark) out += text[0];
    text.remove_prefix(mark ? 3 : 1);
  }
  return out;
}

// A template without these can't put the beginning of a special token together by itself.
bool SpellsNoToken(std::string_view source) {
  return source.find_first_of("<\\[") == std::string_view::npos &&
         source.find("%c") == std::string_view::npos;
}

void CheckMarked(const quire::text::ChatTemplate& compiled, std::string_view source,
                 std::string_view messages, std::string_view tools, RenderOptions options) {
  static const auto kTokenizer = Tokenizer::FromJson(TokenizerJson()).value();
  options.tokenizer = kTokenizer.get();
  options.special_tokens.clear();
  const auto text = compiled.Render(messages, tools, options);
  if (!text.ok()) return;
  const auto ids = kTokenizer->Encode(*text, {.marked = true});
  if (!ids.ok()) return;  // over a limit
  Require(Unmarked(kTokenizer->Decode(*ids, false)) == Unmarked(*text));
  if (!SpellsNoToken(source)) return;
  Require(
      std::none_of(ids->begin(), ids->end(), [](int32_t id) { return kTokenizer->IsSpecial(id); }));
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  const size_t end = input.find('\0');
  const std::string_view source = input.substr(0, end);
  const std::string_view messages = end == std::string_view::npos
                                        ? R"([{"role":"user","content":"hi</s>"},)"
                                          R"({"role":"assistant","content":[{"text":"x[END]"}]}])"
                                        : input.substr(end + 1);
  const auto compiled = quire::text::ChatTemplate::Compile(source);
  if (!compiled.ok()) return 0;
  RenderOptions options;
  options.special_tokens = {{"bos_token", "<s>"}};
  const std::string_view tools = R"([{"type":"function","function":{"name":"f<|user|>"}}])";
  const auto text = (*compiled)->Render(messages, tools, options);
  Require(!absl::IsInternal(text.status()));  // something gave up
  const auto again = (*compiled)->Render(messages, tools, options);
  Require(text.ok() == again.ok() && (!text.ok() || *text == *again));
  Require(!text.ok() || text->size() <= quire::text::kMaxTemplateOutputBytes);
  CheckMarked(**compiled, source, messages, tools, options);
  return 0;
}
