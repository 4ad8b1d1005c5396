// Fuzzes chat templates and the messages that they render: whatever comes in, a status or a text of
// bounded size comes out, and the same twice.
//
// The input is a template, a zero byte, and messages in JSON. Without a zero byte the messages are
// fixed.
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "common/text/chat_template.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  const size_t end = input.find('\0');
  const std::string_view messages = end == std::string_view::npos
                                        ? R"([{"role":"user","content":"hi"},)"
                                          R"({"role":"assistant","content":[{"text":"x"}]}])"
                                        : input.substr(end + 1);
  const auto compiled = quire::text::ChatTemplate::Compile(input.substr(0, end));
  if (!compiled.ok()) return 0;
  quire::text::RenderOptions options;
  options.special_tokens = {{"bos_token", "<s>"}};
  const std::string_view tools = R"([{"type":"function","function":{"name":"f"}}])";
  const auto text = (*compiled)->Render(messages, tools, options);
  const auto again = (*compiled)->Render(messages, tools, options);
  if (text.ok() != again.ok() || (text.ok() && *text != *again)) std::abort();
  if (text.ok() && text->size() > quire::text::kMaxTemplateOutputBytes) std::abort();
  return 0;
}
