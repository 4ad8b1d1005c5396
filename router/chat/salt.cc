#include "router/chat/salt.h"

#include <openssl/evp.h>
#include <openssl/hmac.h>

#include "common/check.h"

namespace quire {

std::string CacheSalt(std::string_view key, std::string_view domain, std::string_view client_salt) {
  std::string message(domain);
  message.push_back('\0');
  message += client_salt;
  unsigned char digest[EVP_MAX_MD_SIZE];
  unsigned int size = 0;
  const unsigned char* done =
      HMAC(EVP_sha256(), key.data(), static_cast<int>(key.size()),
           reinterpret_cast<const unsigned char*>(message.data()), message.size(), digest, &size);
  QUIRE_CHECK(done != nullptr && size == 32);
  return std::string(reinterpret_cast<const char*>(digest), size);
}

std::string SaltBook::Of(const std::string& domain, std::string_view client_salt) {
  if (!client_salt.empty()) return CacheSalt(key_, domain, client_salt);
  const auto known = known_.find(domain);
  if (known != known_.end()) return known->second;
  if (known_.size() >= kMaxRemembered) known_.clear();
  return known_.emplace(domain, CacheSalt(key_, domain, "")).first->second;
}

}  // namespace quire
