#include <algorithm>

#include "absl/strings/str_cat.h"
#include "common/json/json.h"
#include "common/status.h"
#include "common/text/text_bundle.h"
#include "common/text/tokenizer.h"

namespace quire::text {
namespace {

// Control tokens of GGUF vocabularies that end a turn though the file doesn't say so.
constexpr std::string_view kTurnEnds[] = {"<end_of_turn>",   "<|eot_id|>", "<|eom_id|>",
                                          "<|end_of_text|>", "<|im_end|>", "<|end|>",
                                          "<|endoftext|>",   "<|return|>"};

absl::Status Wrong(std::string_view file, std::string_view what) {
  return absl::InvalidArgumentError(absl::StrCat(AbslView(file), ": ", AbslView(what)));
}

// Text from a file that may hold anything, as UTF-8.
std::string Sanitized(std::string_view text) {
  std::string quoted;
  json::AppendQuoted(text, quoted);
  const auto value = json::Parse(quoted);
  if (!value.ok() || !value->is_string()) return {};
  return std::string(json::View(value->get_string()));
}

// The object that a file holds; nullopt: there is no such file.
absl::StatusOr<std::optional<json::Value>> ReadObject(
    const std::map<std::string, std::string>& files, const std::string& name) {
  const auto file = files.find(name);
  if (file == files.end()) return std::nullopt;
  auto value = json::Parse(file->second, {.pythons_infinity = name == "config.json"});
  if (!value.ok()) return Wrong(name, StatusMessage(value.status()));
  if (!value->is_object()) return Wrong(name, "must hold an object");
  return *std::move(value);
}

// A token's text: a string, or an object with `content`.
std::optional<std::string> TokenText(const json::Value& value) {
  const json::Value* text = &value;
  if (value.is_object()) text = json::Find(value.get_object(), "content");
  if (text == nullptr || !text->is_string()) return std::nullopt;
  return std::string(json::View(text->get_string()));
}

void AddSpecial(std::string_view name, const json::Value& value, const Tokenizer& tokenizer,
                TextBundle* bundle) {
  const std::optional<std::string> text = TokenText(value);
  if (!text || bundle->FindSpecialToken(name) != nullptr) return;
  if (bundle->special_tokens.size() >= kMaxTextBundleItems) return;
  bundle->special_tokens.push_back(
      {std::string(name), *text, tokenizer.PieceToId(*text).value_or(-1)});
}

void AddSpecials(const json::Object& from, const Tokenizer& tokenizer, TextBundle* bundle) {
  for (const auto& member : from) {
    const std::string_view name(member.key().data(), member.key().size());
    if (name.ends_with("_token")) AddSpecial(name, member.value(), tokenizer, bundle);
  }
  const json::Value* extra = json::Find(from, "extra_special_tokens");
  if (extra == nullptr || !extra->is_object()) return;
  for (const auto& member : extra->get_object()) {
    AddSpecial({member.key().data(), member.key().size()}, member.value(), tokenizer, bundle);
  }
}

absl::Status AddTemplates(const json::Object& config, TextBundle* bundle) {
  const json::Value* value = json::Find(config, "chat_template");
  if (value == nullptr) return absl::OkStatus();
  if (value->is_string()) {
    bundle->chat_templates.push_back({"default", std::string(json::View(value->get_string()))});
    return absl::OkStatus();
  }
  if (!value->is_array() || value->get_array().size() > kMaxTextBundleItems) {
    return Wrong("tokenizer_config.json", "chat_template must be a string or a short list");
  }
  for (const json::Value& item : value->get_array()) {
    const json::Object* named = item.if_object();
    const json::Value* name = named == nullptr ? nullptr : json::Find(*named, "name");
    const json::Value* source = named == nullptr ? nullptr : json::Find(*named, "template");
    if (name == nullptr || source == nullptr || !name->is_string() || !source->is_string()) {
      return Wrong("tokenizer_config.json", "chat_template entries need name and template");
    }
    bundle->chat_templates.push_back({std::string(json::View(name->get_string())),
                                      std::string(json::View(source->get_string()))});
  }
  return absl::OkStatus();
}

void AddEnd(int64_t id, const Tokenizer& tokenizer, TextBundle* bundle) {
  if (id < 0 || id >= tokenizer.VocabSize()) return;
  if (bundle->eos_token_ids.size() >= kMaxTextBundleItems) return;
  bundle->eos_token_ids.push_back(static_cast<int32_t>(id));
}

// `eos_token_id` is a number or a list of numbers. False: the object has none.
bool AddEnds(const json::Object& from, const Tokenizer& tokenizer, TextBundle* bundle) {
  const json::Value* value = json::Find(from, "eos_token_id");
  if (value == nullptr) return false;
  if (value->is_int64()) AddEnd(value->get_int64(), tokenizer, bundle);
  if (const json::Array* list = value->if_array()) {
    for (const json::Value& id : *list) {
      if (id.is_int64()) AddEnd(id.get_int64(), tokenizer, bundle);
    }
  }
  return true;
}

void SortEnds(TextBundle* bundle) {
  std::vector<int32_t>& ends = bundle->eos_token_ids;
  std::sort(ends.begin(), ends.end());
  ends.erase(std::unique(ends.begin(), ends.end()), ends.end());
}

template <typename T, typename Read>
absl::Status TakeSetting(const json::Object& from, std::string_view name, Read read,
                         std::optional<T>* to) {
  const json::Value* value = json::Find(from, name);
  if (value == nullptr) return absl::OkStatus();
  auto result = read(*value, name);
  if (!result.ok()) {
    return Wrong("generation_config.json", StatusMessage(result.status()));
  }
  *to = *result;
  return absl::OkStatus();
}

absl::Status TakeGeneration(const json::Object& from, GenerationDefaults* to) {
  QUIRE_RETURN_IF_ERROR(TakeSetting(from, "temperature", json::AsDouble, &to->temperature));
  QUIRE_RETURN_IF_ERROR(TakeSetting(from, "top_p", json::AsDouble, &to->top_p));
  QUIRE_RETURN_IF_ERROR(TakeSetting(from, "min_p", json::AsDouble, &to->min_p));
  QUIRE_RETURN_IF_ERROR(
      TakeSetting(from, "repetition_penalty", json::AsDouble, &to->repetition_penalty));
  QUIRE_RETURN_IF_ERROR(TakeSetting(from, "top_k", json::AsInt, &to->top_k));
  QUIRE_RETURN_IF_ERROR(TakeSetting(from, "max_new_tokens", json::AsInt, &to->max_new_tokens));
  return TakeSetting(from, "do_sample", json::AsBool, &to->do_sample);
}

// model_max_length is a huge float where the model sets no limit.
int64_t MaxLength(const json::Object& config) {
  constexpr double kHuge = 1e12;
  const json::Value* value = json::Find(config, "model_max_length");
  if (value == nullptr || !value->is_number()) return 0;
  const double length = value->to_number<double>();
  return length >= 1 && length < kHuge ? static_cast<int64_t>(length) : 0;
}

// End ids: those of the generation settings, else of the model's configuration (whose text part may
// be nested), and always the tokenizer's own end of sequence.
absl::Status CollectEnds(const std::map<std::string, std::string>& files,
                         const std::optional<json::Value>& generation, const Tokenizer& tokenizer,
                         TextBundle* bundle) {
  QUIRE_ASSIGN_OR_RETURN(const auto config, ReadObject(files, "config.json"));
  const bool given = generation && AddEnds(generation->get_object(), tokenizer, bundle);
  if (!given && config) {
    const json::Object& object = config->get_object();
    if (!AddEnds(object, tokenizer, bundle)) {
      const json::Value* inner = json::Find(object, "text_config");
      if (inner != nullptr && inner->is_object()) AddEnds(inner->get_object(), tokenizer, bundle);
    }
  }
  if (const NamedToken* end = bundle->FindSpecialToken("eos_token")) {
    AddEnd(end->id, tokenizer, bundle);
  }
  SortEnds(bundle);
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<TextBundle> TextBundleFromFiles(const std::map<std::string, std::string>& files) {
  const auto tokenizer_json = files.find("tokenizer.json");
  if (tokenizer_json == files.end()) {
    return absl::InvalidArgumentError(
        "tokenizer.json: is missing; it is written by save_pretrained of a fast tokenizer");
  }
  QUIRE_ASSIGN_OR_RETURN(const auto tokenizer, Tokenizer::FromJson(tokenizer_json->second));
  TextBundle bundle;
  bundle.tokenizer_json = tokenizer_json->second;
  QUIRE_ASSIGN_OR_RETURN(const auto config, ReadObject(files, "tokenizer_config.json"));
  QUIRE_ASSIGN_OR_RETURN(const auto specials, ReadObject(files, "special_tokens_map.json"));
  QUIRE_ASSIGN_OR_RETURN(const auto template_json, ReadObject(files, "chat_template.json"));
  QUIRE_ASSIGN_OR_RETURN(const auto generation, ReadObject(files, "generation_config.json"));
  if (config) {
    AddSpecials(config->get_object(), *tokenizer, &bundle);
    bundle.model_max_length = MaxLength(config->get_object());
  }
  if (specials) AddSpecials(specials->get_object(), *tokenizer, &bundle);
  // Separate template files take precedence over those in the configuration.
  const std::pair<const char*, const char*> template_files[] = {
      {"default", "chat_template.jinja"}, {"tool_use", "additional_chat_templates/tool_use.jinja"}};
  for (const auto& [name, file] : template_files) {
    const auto jinja = files.find(file);
    if (jinja != files.end()) bundle.chat_templates.push_back({name, Sanitized(jinja->second)});
  }
  if (bundle.chat_templates.empty() && template_json) {
    QUIRE_RETURN_IF_ERROR(AddTemplates(template_json->get_object(), &bundle));
  }
  if (bundle.chat_templates.empty() && config) {
    QUIRE_RETURN_IF_ERROR(AddTemplates(config->get_object(), &bundle));
  }
  if (generation) {
    QUIRE_RETURN_IF_ERROR(TakeGeneration(generation->get_object(), &bundle.generation));
  }
  QUIRE_RETURN_IF_ERROR(CollectEnds(files, generation, *tokenizer, &bundle));
  return bundle;
}

absl::StatusOr<TextBundle> TextBundleFromGguf(const GgufVocab& vocab) {
  TextBundle bundle;
  QUIRE_ASSIGN_OR_RETURN(bundle.tokenizer_json, GgufVocabToTokenizerJson(vocab));
  const auto add = [&](std::string_view name, const std::optional<int32_t>& id) {
    if (id) bundle.special_tokens.push_back({std::string(name), Sanitized(vocab.tokens[*id]), *id});
  };
  add("bos_token", vocab.bos_id);
  add("eos_token", vocab.eos_id);
  add("unk_token", vocab.unknown_id);
  add("pad_token", vocab.padding_id);
  for (const std::optional<int32_t>& id : {vocab.eos_id, vocab.eot_id}) {
    if (id) bundle.eos_token_ids.push_back(*id);
  }
  for (size_t id = 0; id < vocab.token_types.size(); ++id) {
    if (vocab.token_types[id] != static_cast<int32_t>(GgufTokenType::kControl)) continue;
    for (const std::string_view end : kTurnEnds) {
      if (vocab.tokens[id] == end) bundle.eos_token_ids.push_back(static_cast<int32_t>(id));
    }
  }
  SortEnds(&bundle);
  if (!vocab.chat_template.empty()) {
    bundle.chat_templates.push_back({"default", Sanitized(vocab.chat_template)});
  }
  if (!vocab.tool_template.empty()) {
    bundle.chat_templates.push_back({"tool_use", Sanitized(vocab.tool_template)});
  }
  return bundle;
}

}  // namespace quire::text
