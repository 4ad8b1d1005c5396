// SHA-256 over fields: what identities of models and adapters are made of.
//
// One thread at a time.
#pragma once

#include <openssl/evp.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

namespace quire::load {

class Sha256 {
 public:
  Sha256();
  void Add(std::span<const std::byte> bytes);
  void AddNumber(uint64_t number) { Add(std::as_bytes(std::span(&number, 1))); }
  // Length first, so that no two sequences of fields have the same bytes.
  void AddText(std::string_view text) {
    AddNumber(text.size());
    Add(std::as_bytes(std::span(text)));
  }
  // 64 hexadecimal digits; nothing is added afterwards.
  std::string Hex();

 private:
  std::unique_ptr<EVP_MD_CTX, decltype(&EVP_MD_CTX_free)> context_;
};

}  // namespace quire::load
