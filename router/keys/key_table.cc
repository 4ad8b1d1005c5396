#include "router/keys/key_table.h"

#include <openssl/crypto.h>
#include <openssl/sha.h>

#include <algorithm>

#include "router/keys/key_file.h"

namespace quire {
namespace {

// Settings of a tenant as a whole must not depend on the key that it uses.
bool SameLimits(const TenantProfile& a, const TenantProfile& b) {
  return a.weight == b.weight && a.requests_per_minute == b.requests_per_minute &&
         a.tokens_per_minute == b.tokens_per_minute && a.max_concurrent == b.max_concurrent &&
         a.CacheDomain() == b.CacheDomain();
}

}  // namespace

KeyHash HashOfKey(std::string_view key) {
  KeyHash hash;
  SHA256(reinterpret_cast<const unsigned char*>(key.data()), key.size(), hash.data());
  return hash;
}

std::string HexOfHash(const KeyHash& hash) {
  static constexpr char kHex[] = "0123456789abcdef";
  std::string text;
  for (const uint8_t byte : hash) {
    text += kHex[byte >> 4];
    text += kHex[byte & 15];
  }
  return text;
}

bool IsTenantName(std::string_view name) {
  return !name.empty() && name.size() <= kMaxTenantNameBytes &&
         std::all_of(name.begin(), name.end(), [](char c) {
           return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                  c == '-' || c == '_' || c == '.';
         });
}

absl::StatusOr<std::shared_ptr<const KeyTable>> KeyTable::Parse(std::string_view json) {
  QUIRE_ASSIGN_OR_RETURN(const std::vector<KeyFileEntry> entries, ReadKeyFile(json));
  auto table = std::make_shared<KeyTable>();
  for (const KeyFileEntry& entry : entries) {
    const auto profile = std::make_shared<const TenantProfile>(entry.profile);
    for (const KeyHash& hash : entry.hashes) {
      QUIRE_RETURN_IF_ERROR(table->Add(hash, profile, entry.where));
    }
  }
  return std::shared_ptr<const KeyTable>(std::move(table));
}

absl::StatusOr<std::shared_ptr<const KeyTable>> KeyTable::OfPlainKeys(
    const std::vector<std::string>& keys, const std::string& tenant) {
  auto table = std::make_shared<KeyTable>();
  TenantProfile profile;
  profile.name = tenant;
  const auto shared = std::make_shared<const TenantProfile>(std::move(profile));
  for (size_t i = 0; i < keys.size(); ++i) {
    const std::string& key = keys[i];
    if (key.size() < kMinApiKeyBytes || key.size() > kMaxApiKeyBytes) {
      const std::string which = keys.size() == 1 ? "" : "number " + std::to_string(i + 1) + " ";
      return InvalidArgument(which + "must have " + std::to_string(kMinApiKeyBytes) + " to " +
                             std::to_string(kMaxApiKeyBytes) + " bytes, has " +
                             std::to_string(key.size()) +
                             "; `openssl rand -hex 24` makes a good one");
    }
    QUIRE_RETURN_IF_ERROR(table->Add(HashOfKey(key), shared, "a key"));
  }
  return std::shared_ptr<const KeyTable>(std::move(table));
}

absl::StatusOr<std::shared_ptr<const KeyTable>> KeyTable::Join(const KeyTable& a,
                                                               const KeyTable& b) {
  auto table = std::make_shared<KeyTable>(a);
  for (const Key& key : b.keys_) {
    QUIRE_RETURN_IF_ERROR(table->Add(key.hash, key.profile, "a key"));
  }
  return std::shared_ptr<const KeyTable>(std::move(table));
}

absl::Status KeyTable::Add(const KeyHash& hash, std::shared_ptr<const TenantProfile> profile,
                           const std::string& where) {
  if (keys_.size() >= kMaxApiKeys) {
    return InvalidArgument(where + ": more than " + std::to_string(kMaxApiKeys) + " keys");
  }
  const bool known =
      std::any_of(keys_.begin(), keys_.end(), [&](const Key& key) { return key.hash == hash; });
  if (known) return InvalidArgument(where + ".sha256: stands for a key that was given before");
  const std::shared_ptr<const TenantProfile> before = FindTenant(profile->name);
  if (before && !SameLimits(*before, *profile)) {
    return InvalidArgument(where + ": tenant \"" + profile->name +
                           "\" has another weight, limit or cache_group in an earlier key; these "
                           "are the tenant's, write the same with each of its keys");
  }
  if (!before) tenants_.push_back(profile->name);
  keys_.push_back({hash, std::move(profile)});
  return absl::OkStatus();
}

std::shared_ptr<const TenantProfile> KeyTable::Find(std::string_view key) const {
  if (key.size() < kMinApiKeyBytes || key.size() > kMaxApiKeyBytes) return nullptr;
  const KeyHash hash = HashOfKey(key);
  const Key* found = nullptr;
  for (const Key& candidate : keys_) {
    const bool equal = CRYPTO_memcmp(candidate.hash.data(), hash.data(), hash.size()) == 0;
    found = equal ? &candidate : found;
  }
  return found == nullptr ? nullptr : found->profile;
}

std::vector<std::shared_ptr<const TenantProfile>> KeyTable::Profiles() const {
  std::vector<std::shared_ptr<const TenantProfile>> profiles;
  for (const Key& key : keys_) {
    if (profiles.empty() || profiles.back() != key.profile) profiles.push_back(key.profile);
  }
  return profiles;
}

std::shared_ptr<const TenantProfile> KeyTable::FindTenant(std::string_view name) const {
  for (const Key& key : keys_) {
    if (key.profile->name == name) return key.profile;
  }
  return nullptr;
}

}  // namespace quire
