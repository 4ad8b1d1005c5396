#include "common/text/chat_template.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "common/status.h"
#include "common/text/bridge_call.h"

namespace quire::text {

struct ChatTemplate::Impl {
  ~Impl() { qtb_template_free(handle); }

  QtbTemplate* handle = nullptr;
};

ChatTemplate::ChatTemplate(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
ChatTemplate::~ChatTemplate() = default;

absl::StatusOr<std::unique_ptr<ChatTemplate>> ChatTemplate::Compile(std::string_view source) {
  if (source.size() > kMaxTemplateBytes) {
    return absl::ResourceExhaustedError(absl::StrCat("the chat template has ", source.size(),
                                                     " bytes; at most ", kMaxTemplateBytes,
                                                     " are read"));
  }
  // Jinja reads every kind of line end as one: templates written on Windows have "\r\n".
  const std::string lines = absl::StrReplaceAll(AbslView(source), {{"\r\n", "\n"}, {"\r", "\n"}});
  auto impl = std::make_unique<Impl>();
  OwnedBytes error;
  ShareNewHandler();
  const int32_t code = qtb_template_new(ToSpan(lines), &impl->handle, error.out());
  if (code != QTB_OK) return BridgeStatus(code, error);
  return std::unique_ptr<ChatTemplate>(new ChatTemplate(std::move(impl)));
}

absl::StatusOr<std::string> ChatTemplate::Render(std::string_view messages_json,
                                                 std::string_view tools_json,
                                                 const RenderOptions& options) const {
  const size_t input = messages_json.size() + tools_json.size() + options.extra_json.size();
  if (input > kMaxTemplateInputBytes) {
    return absl::ResourceExhaustedError(absl::StrCat("messages and tools have ", input,
                                                     " bytes; at most ", kMaxTemplateInputBytes,
                                                     " are rendered"));
  }
  std::vector<QtbNamed> specials;
  specials.reserve(options.special_tokens.size());
  for (const auto& [name, text] : options.special_tokens) {
    specials.push_back({ToSpan(name), ToSpan(text)});
  }
  const QtbRender render = {
      .messages_json = ToSpan(messages_json),
      .tools_json = ToSpan(tools_json),
      .extra_json = ToSpan(options.extra_json),
      .special_tokens = specials.data(),
      .special_tokens_size = specials.size(),
      .cancelled = ToFlag(options.cancelled),
      .now_unix_seconds = options.now_unix_seconds,
      .max_output_bytes = kMaxTemplateOutputBytes,
      .add_generation_prompt = options.add_generation_prompt,
      .continue_final_message = options.continue_final_message,
      .tokenizer = options.tokenizer == nullptr ? nullptr : options.tokenizer->handle()};
  OwnedBytes text;
  OwnedBytes error;
  const int32_t code = qtb_template_render(impl_->handle, &render, text.out(), error.out());
  if (code != QTB_OK) return BridgeStatus(code, error);
  return std::string(text.view());
}

}  // namespace quire::text
