#include "router/keys/key_file.h"

#include <limits>

#include "common/ascii.h"
#include "common/json/json.h"

namespace quire {
namespace {

constexpr size_t kMaxDepth = 8;
constexpr size_t kMaxHashesPerEntry = 16;
constexpr size_t kMaxModelsPerEntry = 256;
constexpr size_t kMaxNameBytes = 256;
constexpr size_t kMaxShownBytes = 64;  // of a name in an error

// Names under which people write secrets: errors about them must help without repeating the values.
constexpr std::string_view kPlainNames[] = {"key",   "api_key", "apikey",   "plain",
                                            "token", "secret",  "password", "value"};

absl::Status BadHash(const std::string& where) {
  return InvalidArgument(where +
                         ".sha256: must be the 64 hex digits of the key's SHA-256, which "
                         "`printf %s \"$KEY\" | sha256sum` prints; plain keys do not belong here");
}

absl::StatusOr<KeyHash> ReadHash(const json::Value& value, const std::string& where) {
  const json::String* text = value.if_string();
  KeyHash hash;
  if (text == nullptr || text->size() != 2 * hash.size()) return BadHash(where);
  for (size_t i = 0; i < hash.size(); ++i) {
    const int high = HexDigit((*text)[2 * i]);
    const int low = HexDigit((*text)[2 * i + 1]);
    if (high < 0 || low < 0) return BadHash(where);
    hash[i] = static_cast<uint8_t>(high * 16 + low);
  }
  return hash;
}

absl::Status ReadHashes(const json::Value& value, KeyFileEntry& entry) {
  const json::Array* list = value.if_array();
  if (list == nullptr) {
    QUIRE_ASSIGN_OR_RETURN(const KeyHash hash, ReadHash(value, entry.where));
    entry.hashes.push_back(hash);
    return absl::OkStatus();
  }
  if (list->empty() || list->size() > kMaxHashesPerEntry) {
    return InvalidArgument(entry.where + ".sha256: must be one hash or a list of 1 to " +
                           std::to_string(kMaxHashesPerEntry));
  }
  for (const json::Value& item : *list) {
    QUIRE_ASSIGN_OR_RETURN(const KeyHash hash, ReadHash(item, entry.where));
    entry.hashes.push_back(hash);
  }
  return absl::OkStatus();
}

absl::Status ReadTenantName(const json::Value& value, const std::string& name, std::string& out) {
  QUIRE_ASSIGN_OR_RETURN(const std::string_view text, json::AsString(value, name));
  if (!IsTenantName(text)) {
    return InvalidArgument(name + ": must be 1 to " + std::to_string(kMaxTenantNameBytes) +
                           " letters, digits, '-', '_' or '.', such as acme-prod");
  }
  out = std::string(text);
  return absl::OkStatus();
}

absl::Status ReadModels(const json::Value& value, const std::string& name, TenantProfile& out) {
  QUIRE_ASSIGN_OR_RETURN(const json::Array* list, json::AsArray(value, name));
  if (list->empty() || list->size() > kMaxModelsPerEntry) {
    return InvalidArgument(name + ": must list 1 to " + std::to_string(kMaxModelsPerEntry) +
                           " served names; leave it out to allow all");
  }
  for (const json::Value& item : *list) {
    QUIRE_ASSIGN_OR_RETURN(const std::string_view model, json::AsString(item, name + "[]"));
    if (model.empty() || model.size() > kMaxNameBytes) {
      return InvalidArgument(name + ": each must have 1 to " + std::to_string(kMaxNameBytes) +
                             " bytes");
    }
    out.models.emplace_back(model);
  }
  return absl::OkStatus();
}

template <class Number>
absl::Status ReadNumber(const json::Value& value, const std::string& name, int64_t min, int64_t max,
                        Number& out) {
  QUIRE_ASSIGN_OR_RETURN(const int64_t number, json::AsInt(value, name));
  if (number < min || number > max) {
    return InvalidArgument(name + ": must be in [" + std::to_string(min) + ", " +
                           std::to_string(max) + "], is " + std::to_string(number));
  }
  out = static_cast<Number>(number);
  return absl::OkStatus();
}

absl::Status ReadMember(std::string_view member, const json::Value& value, KeyFileEntry& entry) {
  TenantProfile& profile = entry.profile;
  const std::string name = entry.where + "." + std::string(member.substr(0, kMaxShownBytes));
  constexpr int64_t kMaxU32 = std::numeric_limits<uint32_t>::max();
  if (member == "sha256") return ReadHashes(value, entry);
  if (member == "tenant") return ReadTenantName(value, name, profile.name);
  if (member == "cache_group") return ReadTenantName(value, name, profile.cache_group);
  if (member == "models") return ReadModels(value, name, profile);
  if (member == "weight") return ReadNumber(value, name, 1, 1000, profile.weight);
  if (member == "requests_per_minute") {
    return ReadNumber(value, name, 1, kMaxU32, profile.requests_per_minute);
  }
  if (member == "tokens_per_minute") {
    return ReadNumber(value, name, 1, int64_t{1} << 53, profile.tokens_per_minute);
  }
  if (member == "max_concurrent") {
    return ReadNumber(value, name, 1, kMaxU32, profile.max_concurrent);
  }
  if (member == "highest_priority") {
    int32_t priority = 0;
    QUIRE_RETURN_IF_ERROR(ReadNumber(value, name, std::numeric_limits<int32_t>::min(),
                                     std::numeric_limits<int32_t>::max(), priority));
    profile.highest_priority = priority;
    return absl::OkStatus();
  }
  if (member == "delegate") {
    QUIRE_ASSIGN_OR_RETURN(profile.delegate, json::AsBool(value, name));
    return absl::OkStatus();
  }
  if (member == "comment") return json::AsString(value, name).status();
  for (const std::string_view plain : kPlainNames) {
    if (member != plain) continue;
    return InvalidArgument(name +
                           ": plain keys do not belong in the file; write sha256 instead, as "
                           "`printf %s \"$KEY\" | sha256sum` prints it");
  }
  std::string unknown = entry.where + ".";
  json::AppendQuoted(member.substr(0, kMaxShownBytes), unknown);  // it may contain anything
  return InvalidArgument(unknown +
                         ": is unknown; sha256, tenant, models, cache_group, weight, "
                         "requests_per_minute, tokens_per_minute, max_concurrent, "
                         "highest_priority, delegate and comment are known");
}

absl::StatusOr<KeyFileEntry> ReadEntry(const json::Value& value, size_t index) {
  KeyFileEntry entry;
  entry.where = "keys[" + std::to_string(index) + "]";
  QUIRE_ASSIGN_OR_RETURN(const json::Object* object, json::AsObject(value, entry.where));
  for (const auto& member : *object) {
    const std::string_view name(member.key().data(), member.key().size());
    QUIRE_RETURN_IF_ERROR(ReadMember(name, member.value(), entry));
  }
  if (entry.hashes.empty()) return BadHash(entry.where);
  if (entry.profile.name.empty()) {
    return InvalidArgument(entry.where + ".tenant: is missing; name whom the key belongs to");
  }
  return entry;
}

}  // namespace

absl::StatusOr<std::vector<KeyFileEntry>> ReadKeyFile(std::string_view text) {
  QUIRE_ASSIGN_OR_RETURN(const json::Value value, json::Parse(text, {.max_bytes = kMaxKeyFileBytes,
                                                                     .max_depth = kMaxDepth}));
  const json::Object* object = value.if_object();
  const json::Value* list = object == nullptr ? nullptr : json::Find(*object, "keys");
  if (list == nullptr || !list->is_array() || object->size() != 1) {
    return InvalidArgument(
        "must be {\"keys\": [{\"sha256\": …, \"tenant\": …}, …]} and nothing else");
  }
  std::vector<KeyFileEntry> entries;
  for (const json::Value& item : list->get_array()) {
    QUIRE_ASSIGN_OR_RETURN(KeyFileEntry entry, ReadEntry(item, entries.size()));
    entries.push_back(std::move(entry));
  }
  return entries;
}

}  // namespace quire
