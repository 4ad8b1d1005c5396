// Keys for tests of the edge: two tenants, one held to another model, and a gateway.
#pragma once

#include <memory>
#include <string>

#include "router/keys/key_ring.h"

namespace quire {

inline constexpr char kAcmeKey[] = "key-of-acme-in-tests";
inline constexpr char kBetaKey[] = "key-of-beta-in-tests";  // may use the model "other" only
inline constexpr char kGatewayKey[] = "key-of-gateway-in-tests";

inline std::shared_ptr<const KeyTable> TestKeys() {
  const auto hash = [](const char* key) { return HexOfHash(HashOfKey(key)); };
  return *KeyTable::Parse("{\"keys\":[{\"sha256\":\"" + hash(kAcmeKey) +
                          R"(","tenant":"acme","highest_priority":0},{"sha256":")" +
                          hash(kBetaKey) + R"(","tenant":"beta","models":["other"]},{"sha256":")" +
                          hash(kGatewayKey) + R"(","tenant":"gateway","delegate":true}]})");
}

}  // namespace quire
