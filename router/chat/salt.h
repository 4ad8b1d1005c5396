// The cache salt of a request: who may share cached prefixes with whom.
//
// Pure function; any thread.
#pragma once

#include <string>
#include <string_view>

namespace quire {

inline constexpr size_t kMaxCacheSaltBytes = 256;  // of a client's cache_salt

// The key where no file with a secret one is configured; only for routers without API keys.
inline constexpr std::string_view kPublicSaltKey = "quire-public-salt-key";

// HMAC-SHA256(key, cache group ‖ 0 ‖ client's salt), 32 bytes.
std::string CacheSalt(std::string_view key, std::string_view cache_group,
                      std::string_view client_salt);

}  // namespace quire
