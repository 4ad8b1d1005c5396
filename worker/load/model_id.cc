#include "worker/load/model_id.h"

#include <openssl/evp.h>

#include <memory>
#include <span>

#include "absl/strings/escaping.h"
#include "common/check.h"

namespace quire::load {
namespace {

class Sha256 {
 public:
  Sha256() : context_(EVP_MD_CTX_new(), EVP_MD_CTX_free) {
    QUIRE_CHECK(context_ != nullptr &&
                EVP_DigestInit_ex(context_.get(), EVP_sha256(), nullptr) == 1);
  }
  void Add(std::span<const std::byte> bytes) {
    QUIRE_CHECK(EVP_DigestUpdate(context_.get(), bytes.data(), bytes.size()) == 1);
  }
  void AddNumber(uint64_t number) { Add(std::as_bytes(std::span(&number, 1))); }
  // Length first, so that no two sequences of fields have the same bytes.
  void AddText(std::string_view text) {
    AddNumber(text.size());
    Add(std::as_bytes(std::span(text)));
  }
  std::string Hex() {
    unsigned char digest[EVP_MAX_MD_SIZE];
    unsigned int size = 0;
    QUIRE_CHECK(EVP_DigestFinal_ex(context_.get(), digest, &size) == 1);
    return absl::BytesToHexString(absl::string_view(reinterpret_cast<const char*>(digest), size));
  }

 private:
  std::unique_ptr<EVP_MD_CTX, decltype(&EVP_MD_CTX_free)> context_;
};

void AddSample(Sha256& digest, std::span<const std::byte> bytes) {
  if (bytes.size() <= 3 * kDigestedBytes) {
    digest.Add(bytes);
    return;
  }
  digest.Add(bytes.first(kDigestedBytes));
  digest.Add(bytes.subspan((bytes.size() - kDigestedBytes) / 2, kDigestedBytes));
  digest.Add(bytes.last(kDigestedBytes));
}

}  // namespace

std::string ModelId(const ModelConfig& config, std::string_view text_bundle_digest,
                    const TensorTable& tensors) {
  Sha256 digest;
  digest.AddText("quire model 1");
  digest.AddText(CanonicalText(config));
  digest.AddText(text_bundle_digest);
  digest.AddNumber(tensors.size());
  for (const auto& [name, tensor] : tensors.all()) {
    digest.AddText(name);
    digest.AddText(tensor.type_name);
    digest.AddNumber(tensor.shape.size());
    for (int64_t dimension : tensor.shape) digest.AddNumber(static_cast<uint64_t>(dimension));
    digest.AddNumber(tensor.bytes.size());
    AddSample(digest, tensor.bytes);
  }
  return digest.Hex();
}

}  // namespace quire::load
