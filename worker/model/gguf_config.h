// ModelConfig from the metadata of a GGUF file: what all families share, and the functions from
// which a family builds its own reading. Values that the metadata leaves out are taken from the
// tensors.
//
// Values and pure functions; used once per model, on the loading thread.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "common/status.h"
#include "worker/load/gguf.h"
#include "worker/load/model_config.h"
#include "worker/load/text/text_files.h"

namespace quire::model {

// Reads "<architecture>.<key>"; the first error wins and is returned by status().
class GgufReader {
 public:
  // `path` is for messages, and outlives this.
  GgufReader(const load::GgufFile& file, std::string_view architecture, const std::string& path)
      : file_(file), prefix_(std::string(architecture) + "."), path_(path) {}

  bool Has(std::string_view key) const { return file_.Has(prefix_ + std::string(key)); }
  int64_t RequiredInt(std::string_view key) {
    return Take(file_.Integer(prefix_ + std::string(key)), int64_t{0});
  }
  int64_t Int(std::string_view key, int64_t otherwise) {
    return Has(key) ? RequiredInt(key) : otherwise;
  }
  double RequiredDouble(std::string_view key) {
    return Take(file_.Number(prefix_ + std::string(key)), 0.0);
  }
  double Double(std::string_view key, double otherwise) {
    return Has(key) ? RequiredDouble(key) : otherwise;
  }
  bool Bool(std::string_view key, bool otherwise) {
    return Has(key) ? Take(file_.Bool(prefix_ + std::string(key)), otherwise) : otherwise;
  }
  std::string String(std::string_view key, std::string_view otherwise) {
    if (!Has(key)) return std::string(otherwise);
    return std::string(Take(file_.String(prefix_ + std::string(key)), otherwise));
  }
  bool HasTensor(std::string_view name) const {
    return file_.tensors().Find(std::string(name)) != nullptr;
  }
  // A vector of float32 among the tensors, at most as long as half a head; empty when it is absent.
  std::vector<double> Tensor(const std::string& name);
  // A number, or an array of one equal number per layer.
  int64_t PerLayerInt(std::string_view key, int64_t otherwise);
  // The same, with 0 in layers that have none of it; the others' number.
  int64_t PerLayerIntOrNone(std::string_view key, int64_t otherwise);
  // A number for each of the first `layers` layers, from an array or one number for all.
  std::vector<int64_t> LayerInts(std::string_view key, int layers);
  // kernels::kNoKeys for layers with 0 in such an array, 0 for the others.
  std::vector<int> LayersWithout(std::string_view key, int layers);
  // `what` begins with the key, without its architecture.
  void Fail(std::string_view what) {
    if (status_.ok())
      status_ = absl::InvalidArgumentError(absl::StrCat(path_, ": ", prefix_, AbslView(what)));
  }
  const absl::Status& status() const { return status_; }

 private:
  template <typename T, typename U>
  T Take(absl::StatusOr<T> result, U otherwise) {
    if (result.ok()) return *std::move(result);
    if (status_.ok()) status_ = absl::InvalidArgumentError(result.status().message());
    return T(otherwise);
  }

  const load::GgufFile& file_;
  std::string prefix_;
  const std::string& path_;
  absl::Status status_;
};

// A count that is out of every range stays so as an int.
int ClampCount(int64_t value);

// The convolution and the heads of recurrent layers, from ssm.*.
void ReadStateSizes(GgufReader& reader, load::ModelConfig& config);

// One window for all layers, or none.
void ReadWindow(GgufReader& reader, load::ModelConfig& config);

// How to read a family's metadata.
struct GgufForm {
  std::string_view architecture =
      "";  // "general.architecture"; empty: the family has none of its own
  std::string_view with_experts = "";  // what its files with experts name, where it is another
  // Its files name the architecture of this other family, and are read as such.
  std::string_view written_as = "";
  load::SplittingRule splitting = {};
  bool interleaved_rope = false;     // rows of q and k are in neighbouring pairs
  bool partial_rope = false;         // rope.dimension_count may be less than the head's
  bool latents = false;              // latent attention: `read` reads its sizes
  bool optional_head_norms = false;  // norms of q and k, where the file has them
  bool layer_norm = false;           // without biases; else RMS norms
  bool recurrent = false;            // some layers have no heads of keys and values
  bool rotary = true;                // positions turn q and k
  bool kinds_of_layers = false;      // heads and widths differ by layer: `read` reads all of them
  // What files with experts mean where they leave expert_weights_norm out. kRouted: plain, and
  // experts may have groups, a bias for the choice and shared ones without a gate.
  enum class Experts : uint8_t { kNone, kRenormalised, kPlain, kRouted };
  Experts experts = Experts::kNone;
  // Reads what the family has beside the shared metadata: the windows of all layers, and more.
  void (*read)(GgufReader& reader, load::ModelConfig& config) = ReadWindow;
};

}  // namespace quire::model
