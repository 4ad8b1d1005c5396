// Digests of contents: SHA-256, and SHA-1 of a file as git names it.
//
// Owner: one thread.
#pragma once

#include <openssl/evp.h>

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

namespace quire::pull {

enum class DigestKind { kNone, kSha256, kGitBlob };

class Digest {
 public:
  // A git blob's digest begins with its size.
  Digest(DigestKind kind, int64_t size);
  void Add(std::string_view bytes);
  // In hexadecimal, lower case; empty for kNone.
  std::string Finish();

 private:
  struct Free {
    void operator()(EVP_MD_CTX* context) const { EVP_MD_CTX_free(context); }
  };
  std::unique_ptr<EVP_MD_CTX, Free> context_;
};

std::string Sha256Hex(std::string_view bytes);
// Two digits for each byte, lower case.
std::string HexOfBytes(std::string_view bytes);

}  // namespace quire::pull
