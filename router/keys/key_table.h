// The API keys of a router: which credential belongs to which tenant.
//
// Immutable once made; the key ring and look-ups that are under way share it (shared_ptr). Any
// thread.
//
// Invariants:
// 1. Only the SHA-256 of each key is kept; no plain key is kept, and no error contains one.
// 2. A look-up compares with every key and takes the same time wherever the key is found, and when
//    it is not.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/status.h"
#include "router/core/tenant.h"

namespace quire {

inline constexpr size_t kMaxApiKeys = 4096;
inline constexpr size_t kMinApiKeyBytes = 16;  // as a client sends it
inline constexpr size_t kMaxApiKeyBytes = 512;
inline constexpr size_t kMaxTenantNameBytes = 64;  // letters, digits, '-', '_', '.'
inline constexpr size_t kMaxKeyFileBytes = 4u << 20;

using KeyHash = std::array<uint8_t, 32>;

KeyHash HashOfKey(std::string_view key);
std::string HexOfHash(const KeyHash& hash);

// The valid names of a tenant: 1 to kMaxTenantNameBytes of letters, digits, '-', '_' and '.'.
bool IsTenantName(std::string_view name);

class KeyTable {
 public:
  // Reads a key file (docs/api-keys.md). INVALID_ARGUMENT names the member ("keys[2].sha256: must
  // be …").
  static absl::StatusOr<std::shared_ptr<const KeyTable>> Parse(std::string_view json);
  // Plain keys, all of one tenant without limits, as --api-key gives them.
  static absl::StatusOr<std::shared_ptr<const KeyTable>> OfPlainKeys(
      const std::vector<std::string>& keys, const std::string& tenant);
  // All keys of both. INVALID_ARGUMENT when a key or a tenant's limits are in both and differ.
  static absl::StatusOr<std::shared_ptr<const KeyTable>> Join(const KeyTable& a, const KeyTable& b);

  // nullptr: no such key.
  std::shared_ptr<const TenantProfile> Find(std::string_view key) const;
  // Those of all keys, in the order of the file.
  std::vector<std::shared_ptr<const TenantProfile>> Profiles() const;
  // What the file says of a tenant by name; nullptr: nothing.
  std::shared_ptr<const TenantProfile> FindTenant(std::string_view name) const;

  size_t size() const { return keys_.size(); }
  // In the order of the file, each once.
  const std::vector<std::string>& tenants() const { return tenants_; }

 private:
  struct Key {
    KeyHash hash;
    std::shared_ptr<const TenantProfile> profile;
  };
  absl::Status Add(const KeyHash& hash, std::shared_ptr<const TenantProfile> profile,
                   const std::string& where);

  std::vector<Key> keys_;
  std::vector<std::string> tenants_;
};

}  // namespace quire
