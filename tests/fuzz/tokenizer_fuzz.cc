// Fuzzes the reader of tokenizer.json and what uses it: ids and text must agree with the library's
// own pipeline and with every way of dealing out the ids.
//
// The input is a tokenizer.json, a zero byte, and a text. Without a zero byte the text is fixed.
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include "common/text/detokenizer.h"
#include "common/text/text_bundle.h"
#include "common/text/tokenizer.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  const size_t end = input.find('\0');
  const std::string_view text =
      end == std::string_view::npos ? "Hello,  wörld\n\n 123<s>" : input.substr(end + 1);
  // The same bytes as a bundle: accepted only if they read back to themselves.
  if (const auto bundle = quire::text::ParseTextBundle(input); bundle.ok()) {
    if (*quire::text::SerializeTextBundle(*bundle) != input) std::abort();
  }
  const auto tokenizer = quire::text::Tokenizer::FromJson(input.substr(0, end));
  if (!tokenizer.ok()) return 0;
  uint64_t steps = 0;
  const auto ids = (*tokenizer)->Encode(text, {.add_special_tokens = true, .steps = &steps});
  if (steps > (1u << 20) + quire::text::kMaxStepsPerByte * text.size()) std::abort();
  if (absl::IsInternal(ids.status())) std::abort();  // something of ours gave up
  if (!ids.ok()) return 0;                           // over a limit, maybe: the library has none
  const auto reference = quire::text::Tokenizer::EncodeByReference(input.substr(0, end), text,
                                                                   /*add_special_tokens=*/true);
  if (reference.ok() && *ids != *reference) std::abort();
  for (const bool skip : {false, true}) {
    quire::text::Detokenizer detokenizer(**tokenizer, {.skip_special_tokens = skip});
    std::string dealt;
    for (const int32_t id : *ids) dealt += detokenizer.Append({&id, 1});
    dealt += detokenizer.Flush();
    if (dealt != (*tokenizer)->Decode(*ids, skip)) std::abort();
  }
  return 0;
}
