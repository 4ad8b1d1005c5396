#include "worker/chat_templates.h"

#include <algorithm>
#include <filesystem>
#include <fstream>

#include "common/json/json.h"
#include "common/text/builtin_templates.h"
#include "common/text/chat_template.h"

namespace quire {
namespace {

absl::StatusOr<std::string> TextOfFile(const std::string& path) {
  std::error_code error;
  std::ifstream file(path, std::ios::binary);
  if (!std::filesystem::is_regular_file(path, error) || !file) {
    return InvalidArgument("--chat-template: '" + path +
                           "' is neither a file nor a built-in template; there are " +
                           text::BuiltinTemplateNames());
  }
  std::string source(text::kMaxTemplateBytes + 1, '\0');
  file.read(source.data(), static_cast<std::streamsize>(source.size()));
  source.resize(static_cast<size_t>(std::max<std::streamsize>(file.gcount(), 0)));
  return source;
}

}  // namespace

absl::StatusOr<std::string> ChatTemplateOf(const std::string& flag) {
  if (flag.empty()) return std::string();
  std::string source;
  if (const text::BuiltinTemplate* builtin = text::FindBuiltinTemplate(flag)) {
    source = builtin->source;
  } else {
    QUIRE_ASSIGN_OR_RETURN(source, TextOfFile(flag));
  }
  const auto compiled = text::ChatTemplate::Compile(source);
  if (compiled.ok()) return source;
  return InvalidArgument("--chat-template: " + flag + ": " + StatusMessage(compiled.status()));
}

absl::Status CheckTemplateTokens(const std::string& flag, const text::TextBundle& bundle) {
  const text::BuiltinTemplate* builtin = text::FindBuiltinTemplate(flag);
  if (builtin == nullptr) return absl::OkStatus();
  for (const std::string_view token : builtin->required) {
    std::string quoted;
    json::AppendQuoted(token, quoted);
    if (bundle.tokenizer_json.find(quoted) != std::string::npos) continue;
    return InvalidArgument("--chat-template: " + flag + " needs the token " + std::string(token) +
                           ", which the model's tokenizer does not have; plain and mistral need "
                           "none");
  }
  return absl::OkStatus();
}

std::string ChatWarning(const text::TextBundle& bundle) {
  const std::string remedy =
      "; ask it by completions, or serve it with --chat-template FILE or one of " +
      text::BuiltinTemplateNames();
  const std::string* source = bundle.ChatTemplateSource(false);
  if (source == nullptr) {
    return "the model has no chat template, so it does not chat: it may be a base model, which "
           "continues texts" +
           remedy;
  }
  const auto compiled = text::ChatTemplate::Compile(*source);
  if (compiled.ok()) return "";
  return "the model's chat template is not usable, so it does not chat: " +
         StatusMessage(compiled.status()) + remedy;
}

}  // namespace quire
