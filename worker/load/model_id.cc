#include "worker/load/model_id.h"

#include <span>

#include "worker/load/sha256.h"

namespace quire::load {
namespace {

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
