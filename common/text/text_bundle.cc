#include "common/text/text_bundle.h"

#include <openssl/sha.h>

#include <set>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "common/json/json.h"
#include "common/status.h"
#include "common/text/tokenizer.h"

namespace quire::text {
namespace {

// The bytes are this line, the length of a JSON text in decimal and a line end, the JSON text, and
// the bytes of tokenizer.json, which may be long and is JSON already.
constexpr std::string_view kMagic = "quire text bundle 1\n";
constexpr size_t kMaxHeaderBytes = size_t{16} << 20;
constexpr size_t kMaxHeaderDepth = 8;
constexpr int64_t kMaxTokens = int64_t{1} << 40;

absl::Status Wrong(const std::string& what) {
  return absl::InvalidArgumentError("text bundle: " + what);
}

template <typename T>
void Put(json::Object& object, std::string_view name, const std::optional<T>& value) {
  if (value) object[json::BoostView(name)] = *value;
}

json::Value HeaderOf(const TextBundle& bundle) {
  json::Object generation;
  Put(generation, "temperature", bundle.generation.temperature);
  Put(generation, "top_p", bundle.generation.top_p);
  Put(generation, "min_p", bundle.generation.min_p);
  Put(generation, "repetition_penalty", bundle.generation.repetition_penalty);
  Put(generation, "top_k", bundle.generation.top_k);
  Put(generation, "max_new_tokens", bundle.generation.max_new_tokens);
  Put(generation, "do_sample", bundle.generation.do_sample);
  json::Array templates;
  for (const NamedTemplate& named : bundle.chat_templates) {
    templates.push_back(json::Object{{"name", named.name}, {"source", named.source}});
  }
  json::Array specials;
  for (const NamedToken& token : bundle.special_tokens) {
    specials.push_back(json::Object{{"name", token.name}, {"text", token.text}, {"id", token.id}});
  }
  json::Array ends(bundle.eos_token_ids.begin(), bundle.eos_token_ids.end());
  return json::Object{{"chat_templates", std::move(templates)},
                      {"special_tokens", std::move(specials)},
                      {"eos_token_ids", std::move(ends)},
                      {"generation", std::move(generation)},
                      {"model_max_length", bundle.model_max_length}};
}

template <typename T, typename Read>
absl::Status Take(const json::Object& from, std::string_view name, Read read,
                  std::optional<T>* to) {
  const json::Value* value = json::Find(from, name);
  if (value == nullptr) return absl::OkStatus();
  QUIRE_ASSIGN_OR_RETURN(*to, read(*value, name));
  return absl::OkStatus();
}

absl::StatusOr<std::string> TakeText(const json::Object& from, std::string_view name) {
  const json::Value* value = json::Find(from, name);
  if (value == nullptr) return Wrong(absl::StrCat(AbslView(name), ": is missing"));
  QUIRE_ASSIGN_OR_RETURN(const std::string_view text, json::AsString(*value, name));
  return std::string(text);
}

absl::StatusOr<const json::Array*> TakeList(const json::Object& from, std::string_view name) {
  const json::Value* value = json::Find(from, name);
  if (value == nullptr) return Wrong(absl::StrCat(AbslView(name), ": is missing"));
  QUIRE_ASSIGN_OR_RETURN(const json::Array* list, json::AsArray(*value, name));
  if (list->size() > kMaxTextBundleItems) {
    return Wrong(absl::StrCat(AbslView(name), ": more than ", kMaxTextBundleItems, " entries"));
  }
  return list;
}

absl::StatusOr<int32_t> TakeId(const json::Value& value, std::string_view name, int32_t least) {
  QUIRE_ASSIGN_OR_RETURN(const int64_t id, json::AsInt(value, name));
  if (id < least || id >= static_cast<int64_t>(kMaxVocabSize)) {
    return Wrong(absl::StrCat(AbslView(name), ": ", id, " is no token id"));
  }
  return static_cast<int32_t>(id);
}

absl::Status TakeGeneration(const json::Object& header, GenerationDefaults* to) {
  const json::Value* value = json::Find(header, "generation");
  if (value == nullptr) return Wrong("generation: is missing");
  QUIRE_ASSIGN_OR_RETURN(const json::Object* from, json::AsObject(*value, "generation"));
  QUIRE_RETURN_IF_ERROR(Take(*from, "temperature", json::AsDouble, &to->temperature));
  QUIRE_RETURN_IF_ERROR(Take(*from, "top_p", json::AsDouble, &to->top_p));
  QUIRE_RETURN_IF_ERROR(Take(*from, "min_p", json::AsDouble, &to->min_p));
  QUIRE_RETURN_IF_ERROR(Take(*from, "repetition_penalty", json::AsDouble, &to->repetition_penalty));
  QUIRE_RETURN_IF_ERROR(Take(*from, "top_k", json::AsInt, &to->top_k));
  QUIRE_RETURN_IF_ERROR(Take(*from, "max_new_tokens", json::AsInt, &to->max_new_tokens));
  return Take(*from, "do_sample", json::AsBool, &to->do_sample);
}

absl::Status TakeLists(const json::Object& header, TextBundle* bundle) {
  QUIRE_ASSIGN_OR_RETURN(const json::Array* templates, TakeList(header, "chat_templates"));
  for (const json::Value& value : *templates) {
    QUIRE_ASSIGN_OR_RETURN(const json::Object* from, json::AsObject(value, "chat_templates"));
    NamedTemplate& to = bundle->chat_templates.emplace_back();
    QUIRE_ASSIGN_OR_RETURN(to.name, TakeText(*from, "name"));
    QUIRE_ASSIGN_OR_RETURN(to.source, TakeText(*from, "source"));
  }
  QUIRE_ASSIGN_OR_RETURN(const json::Array* specials, TakeList(header, "special_tokens"));
  for (const json::Value& value : *specials) {
    QUIRE_ASSIGN_OR_RETURN(const json::Object* from, json::AsObject(value, "special_tokens"));
    NamedToken& to = bundle->special_tokens.emplace_back();
    QUIRE_ASSIGN_OR_RETURN(to.name, TakeText(*from, "name"));
    QUIRE_ASSIGN_OR_RETURN(to.text, TakeText(*from, "text"));
    const json::Value* id = json::Find(*from, "id");
    if (id == nullptr) return Wrong("special_tokens.id: is missing");
    QUIRE_ASSIGN_OR_RETURN(to.id, TakeId(*id, "special_tokens.id", -1));
  }
  QUIRE_ASSIGN_OR_RETURN(const json::Array* ends, TakeList(header, "eos_token_ids"));
  for (const json::Value& value : *ends) {
    QUIRE_ASSIGN_OR_RETURN(const int32_t id, TakeId(value, "eos_token_ids", 0));
    bundle->eos_token_ids.push_back(id);
  }
  return absl::OkStatus();
}

template <typename Named>
bool NamesRepeat(const std::vector<Named>& list) {
  std::set<std::string_view> names;
  for (const Named& named : list) {
    if (!names.insert(named.name).second) return true;
  }
  return false;
}

absl::Status CheckBundle(const TextBundle& bundle) {
  if (bundle.tokenizer_json.empty()) return Wrong("tokenizer_json: is empty");
  if (NamesRepeat(bundle.chat_templates)) return Wrong("chat_templates: a name repeats");
  if (NamesRepeat(bundle.special_tokens)) return Wrong("special_tokens: a name repeats");
  const std::vector<int32_t>& ends = bundle.eos_token_ids;
  for (size_t i = 1; i < ends.size(); ++i) {
    if (ends[i - 1] >= ends[i]) return Wrong("eos_token_ids: must rise");
  }
  if (bundle.model_max_length < 0 || bundle.model_max_length > kMaxTokens) {
    return Wrong("model_max_length: out of range");
  }
  return absl::OkStatus();
}

// Splits the bytes into header and tokenizer.json.
absl::StatusOr<std::pair<std::string_view, std::string_view>> SplitBundle(std::string_view bytes) {
  if (bytes.size() > kMaxTextBundleBytes) {
    return absl::ResourceExhaustedError(
        absl::StrCat("text bundle: more than ", kMaxTextBundleBytes, " bytes"));
  }
  if (!bytes.starts_with(kMagic)) return Wrong("does not start as one");
  bytes.remove_prefix(kMagic.size());
  const size_t line_end = bytes.substr(0, 12).find('\n');
  uint32_t size = 0;
  if (line_end == std::string_view::npos ||
      !absl::SimpleAtoi(AbslView(bytes.substr(0, line_end)), &size) || size > kMaxHeaderBytes) {
    return Wrong("header size: malformed");
  }
  bytes.remove_prefix(line_end + 1);
  if (size > bytes.size()) return Wrong("header: cut off");
  return std::make_pair(bytes.substr(0, size), bytes.substr(size));
}

}  // namespace

absl::StatusOr<TextBundle> ParseTextBundle(std::string_view bytes) {
  QUIRE_ASSIGN_OR_RETURN(const auto parts, SplitBundle(bytes));
  QUIRE_ASSIGN_OR_RETURN(
      const json::Value value,
      json::Parse(parts.first, {.max_bytes = kMaxHeaderBytes, .max_depth = kMaxHeaderDepth}));
  QUIRE_ASSIGN_OR_RETURN(const json::Object* header, json::AsObject(value, "text bundle"));
  TextBundle bundle;
  bundle.tokenizer_json = std::string(parts.second);
  QUIRE_RETURN_IF_ERROR(TakeLists(*header, &bundle));
  QUIRE_RETURN_IF_ERROR(TakeGeneration(*header, &bundle.generation));
  const json::Value* length = json::Find(*header, "model_max_length");
  if (length == nullptr) return Wrong("model_max_length: is missing");
  QUIRE_ASSIGN_OR_RETURN(bundle.model_max_length, json::AsInt(*length, "model_max_length"));
  QUIRE_RETURN_IF_ERROR(CheckBundle(bundle));
  // Each value has one byte string, so comparing digests compares bundles.
  QUIRE_ASSIGN_OR_RETURN(const std::string canonical, SerializeTextBundle(bundle));
  if (canonical != bytes) return Wrong("is not spelled as this program spells it");
  return bundle;
}

const std::string* TextBundle::ChatTemplateSource(bool with_tools) const {
  const std::string* found = nullptr;
  for (const NamedTemplate& named : chat_templates) {
    if (with_tools && named.name == "tool_use") return &named.source;
    if (named.name == "default") found = &named.source;
  }
  return found;
}

const NamedToken* TextBundle::FindSpecialToken(std::string_view name) const {
  for (const NamedToken& token : special_tokens) {
    if (token.name == name) return &token;
  }
  return nullptr;
}

absl::StatusOr<std::string> SerializeTextBundle(const TextBundle& bundle) {
  QUIRE_RETURN_IF_ERROR(CheckBundle(bundle));
  const std::string header = json::Serialize(HeaderOf(bundle));
  std::string bytes = absl::StrCat(absl::string_view(kMagic.data(), kMagic.size()), header.size(),
                                   "\n", header, bundle.tokenizer_json);
  if (header.size() > kMaxHeaderBytes || bytes.size() > kMaxTextBundleBytes) {
    return absl::ResourceExhaustedError(absl::StrCat(
        "text bundle: ", bytes.size(), " bytes; at most ", kMaxTextBundleBytes, " can be served"));
  }
  return bytes;
}

std::string TextBundleDigest(std::string_view serialized) {
  unsigned char digest[SHA256_DIGEST_LENGTH];
  SHA256(reinterpret_cast<const unsigned char*>(serialized.data()), serialized.size(), digest);
  constexpr char kDigits[] = "0123456789abcdef";
  std::string hex;
  for (const unsigned char byte : digest) {
    hex.push_back(kDigits[byte >> 4]);
    hex.push_back(kDigits[byte & 15]);
  }
  return hex;
}

}  // namespace quire::text
