// The cache salt of a request, which decides with whom it may share cached prefixes.
//
// CacheSalt is a pure function; a SaltBook has one owner.
#pragma once

#include <map>
#include <string>
#include <string_view>

namespace quire {

inline constexpr size_t kMaxCacheSaltBytes = 256;  // of a client's cache_salt

// The key that is used where no file with a secret one is configured; only for routers without API
// keys.
inline constexpr std::string_view kPublicSaltKey = "quire-public-salt-key";

// HMAC-SHA256(key, domain ‖ 0 ‖ client's salt), 32 bytes. The domain is a tenant's or a cache
// group's (TenantProfile::CacheDomain), empty without credentials, and holds no 0.
std::string CacheSalt(std::string_view key, std::string_view domain, std::string_view client_salt);

// Computes the same under one key and remembers results that are used repeatedly: the salts of
// domains whose clients send none.
class SaltBook {
 public:
  static constexpr size_t kMaxRemembered = 1024;

  // An empty key is the public one.
  explicit SaltBook(std::string_view key) : key_(key.empty() ? kPublicSaltKey : key) {}
  std::string Of(const std::string& domain, std::string_view client_salt);

 private:
  std::string key_;
  std::map<std::string, std::string> known_;  // by domain
};

}  // namespace quire
