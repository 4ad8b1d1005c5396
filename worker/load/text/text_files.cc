#include "worker/load/text/text_files.h"

#include <algorithm>
#include <map>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/status.h"
#include "common/text/tokenizer.h"

namespace quire::load {
namespace {

// The files that TextBundleFromFiles reads, and how large each may be.
struct TextFile {
  const char* name;
  size_t max_bytes;
};
constexpr TextFile kTextFiles[] = {
    {"tokenizer.json", text::kMaxTokenizerJsonBytes},
    {"tokenizer_config.json", 16 << 20},
    {"special_tokens_map.json", 4 << 20},
    {"chat_template.jinja", 1 << 20},
    {"additional_chat_templates/tool_use.jinja", 1 << 20},
    {"chat_template.json", 4 << 20},
    {"generation_config.json", 1 << 20},
    {"config.json", kMaxConfigBytes},
};

absl::Status ReadString(const GgufFile& file, std::string_view key, std::string& out) {
  if (!file.Has(key)) return absl::OkStatus();
  QUIRE_ASSIGN_OR_RETURN(std::string_view value, file.String(key));
  out = std::string(value);
  return absl::OkStatus();
}

absl::Status ReadId(const GgufFile& file, std::string_view key, std::optional<int32_t>& out) {
  if (!file.Has(key)) return absl::OkStatus();
  QUIRE_ASSIGN_OR_RETURN(int64_t value, file.Integer(key));
  // Some writers use an id of all ones for "none".
  if (value == UINT32_MAX || value == -1) return absl::OkStatus();
  if (value < 0 || value > INT32_MAX) {
    return absl::InvalidArgumentError(
        absl::StrCat("metadata \"", AbslView(key), "\" is ", value, ", no token id"));
  }
  out = static_cast<int32_t>(value);
  return absl::OkStatus();
}

absl::Status ReadBool(const GgufFile& file, std::string_view key, std::optional<bool>& out) {
  if (!file.Has(key)) return absl::OkStatus();
  QUIRE_ASSIGN_OR_RETURN(out, file.Bool(key));
  return absl::OkStatus();
}

absl::Status ReadStrings(const GgufFile& file, std::string_view key, uint64_t most,
                         std::vector<std::string>& out) {
  if (!file.Has(key)) return absl::OkStatus();
  QUIRE_ASSIGN_OR_RETURN(GgufArray array, file.Array(key));
  absl::StatusOr<std::vector<std::string_view>> strings = array.Strings(most);
  if (!strings.ok())
    return Annotate(strings.status(), absl::StrCat("metadata \"", AbslView(key), "\""));
  out.assign(strings->begin(), strings->end());
  return absl::OkStatus();
}

// Files from before tokenizer.ggml.pre was written: the rule of their model, where it has one.
// GPT-2's, the default for a missing name, would give other ids.
void InferSplittingRule(const SplittingRule& rule, text::GgufVocab& vocab) {
  if (vocab.model != "gpt2" || (!vocab.pre.empty() && vocab.pre != "default")) return;
  if (rule.name.empty() || (rule.tokens != 0 && rule.tokens != vocab.tokens.size())) return;
  vocab.pre = rule.name;
}

}  // namespace

absl::StatusOr<text::GgufVocab> ReadGgufVocab(const GgufFile& file, const SplittingRule& rule) {
  text::GgufVocab vocab;
  QUIRE_RETURN_IF_ERROR(ReadString(file, "tokenizer.ggml.model", vocab.model));
  QUIRE_RETURN_IF_ERROR(ReadString(file, "tokenizer.ggml.pre", vocab.pre));
  QUIRE_RETURN_IF_ERROR(
      ReadStrings(file, "tokenizer.ggml.tokens", text::kMaxVocabSize, vocab.tokens));
  QUIRE_RETURN_IF_ERROR(ReadStrings(file, "tokenizer.ggml.merges", kMaxGgufMerges, vocab.merges));
  if (file.Has("tokenizer.ggml.scores")) {
    QUIRE_ASSIGN_OR_RETURN(GgufArray array, file.Array("tokenizer.ggml.scores"));
    absl::StatusOr<std::vector<double>> scores = array.Numbers(text::kMaxVocabSize);
    if (!scores.ok()) return Annotate(scores.status(), "metadata \"tokenizer.ggml.scores\"");
    vocab.scores.assign(scores->begin(), scores->end());
  }
  if (file.Has("tokenizer.ggml.token_type")) {
    QUIRE_ASSIGN_OR_RETURN(GgufArray array, file.Array("tokenizer.ggml.token_type"));
    absl::StatusOr<std::vector<int64_t>> types = array.Integers(text::kMaxVocabSize);
    if (!types.ok()) return Annotate(types.status(), "metadata \"tokenizer.ggml.token_type\"");
    for (int64_t type : *types) {
      vocab.token_types.push_back(static_cast<int32_t>(std::clamp<int64_t>(type, 0, INT32_MAX)));
    }
  }
  QUIRE_RETURN_IF_ERROR(ReadId(file, "tokenizer.ggml.bos_token_id", vocab.bos_id));
  QUIRE_RETURN_IF_ERROR(ReadId(file, "tokenizer.ggml.eos_token_id", vocab.eos_id));
  QUIRE_RETURN_IF_ERROR(ReadId(file, "tokenizer.ggml.eot_token_id", vocab.eot_id));
  QUIRE_RETURN_IF_ERROR(ReadId(file, "tokenizer.ggml.unknown_token_id", vocab.unknown_id));
  QUIRE_RETURN_IF_ERROR(ReadId(file, "tokenizer.ggml.padding_token_id", vocab.padding_id));
  QUIRE_RETURN_IF_ERROR(ReadBool(file, "tokenizer.ggml.add_bos_token", vocab.add_bos));
  QUIRE_RETURN_IF_ERROR(ReadBool(file, "tokenizer.ggml.add_eos_token", vocab.add_eos));
  QUIRE_RETURN_IF_ERROR(ReadBool(file, "tokenizer.ggml.add_space_prefix", vocab.add_space_prefix));
  QUIRE_RETURN_IF_ERROR(ReadString(file, "tokenizer.chat_template", vocab.chat_template));
  QUIRE_RETURN_IF_ERROR(ReadString(file, "tokenizer.chat_template.tool_use", vocab.tool_template));
  InferSplittingRule(rule, vocab);
  return vocab;
}

absl::StatusOr<text::TextBundle> LoadTextBundle(const ModelFiles& files,
                                                const SplittingRule& rule) {
  absl::StatusOr<text::TextBundle> bundle;
  if (files.is_gguf()) {
    absl::StatusOr<text::GgufVocab> vocab = ReadGgufVocab(files.gguf(), rule);
    if (!vocab.ok()) return Annotate(vocab.status(), files.path());
    bundle = text::TextBundleFromGguf(*vocab);
  } else {
    std::map<std::string, std::string> texts;
    for (const TextFile& file : kTextFiles) {
      QUIRE_ASSIGN_OR_RETURN(std::optional<std::string> text,
                             files.ReadText(file.name, file.max_bytes));
      if (text.has_value()) texts.emplace(file.name, *std::move(text));
    }
    bundle = text::TextBundleFromFiles(texts);
  }
  if (!bundle.ok()) return Annotate(bundle.status(), files.path());
  return bundle;
}

}  // namespace quire::load
