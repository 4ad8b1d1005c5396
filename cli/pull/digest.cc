#include "cli/pull/digest.h"

namespace quire::pull {

std::string HexOfBytes(std::string_view bytes) {
  constexpr char kDigits[] = "0123456789abcdef";
  std::string text;
  for (const char c : bytes) {
    const auto byte = static_cast<unsigned char>(c);
    text += kDigits[byte >> 4];
    text += kDigits[byte & 15];
  }
  return text;
}

Digest::Digest(DigestKind kind, int64_t size) {
  if (kind == DigestKind::kNone) return;
  context_.reset(EVP_MD_CTX_new());
  EVP_DigestInit_ex(context_.get(), kind == DigestKind::kSha256 ? EVP_sha256() : EVP_sha1(),
                    nullptr);
  if (kind == DigestKind::kGitBlob) {
    const std::string head = "blob " + std::to_string(size);
    Add(std::string_view(head.c_str(), head.size() + 1));  // with its final zero
  }
}

void Digest::Add(std::string_view bytes) {
  if (context_ != nullptr) EVP_DigestUpdate(context_.get(), bytes.data(), bytes.size());
}

std::string Digest::Finish() {
  if (context_ == nullptr) return "";
  unsigned char bytes[EVP_MAX_MD_SIZE];
  unsigned int size = 0;
  EVP_DigestFinal_ex(context_.get(), bytes, &size);
  return HexOfBytes({reinterpret_cast<const char*>(bytes), size});
}

std::string Sha256Hex(std::string_view bytes) {
  Digest digest(DigestKind::kSha256, 0);
  digest.Add(bytes);
  return digest.Finish();
}

}  // namespace quire::pull
