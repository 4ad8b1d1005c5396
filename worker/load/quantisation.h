// How a checkpoint is quantised: its quantization_config (or hf_quant_config.json), and the
// quantised weight of any of its modules.
//
// Owned by ModelFiles; read-only once the files are open. Each method of quantisation is one file
// with one line in the table of quantisation.cc. What a module stores decides whether it is
// quantised. So lists of modules that are left alone need no reading, and a module whose tensors
// agree with nothing that the configuration names is refused.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/json/json.h"
#include "worker/load/quantised_matrix.h"
#include "worker/load/tensor_table.h"

namespace quire::load {

// One way in which a checkpoint's weights are quantised; compressed-tensors may have several.
struct WeightScheme {
  int bits = 8;
  CodeKind kind = CodeKind::kInteger;
  int64_t group = 0;       // inputs that share a scale; 0: all of a row
  int64_t block_rows = 1;  // outputs that share one; 0: all of the matrix
  bool symmetric = true;
  kernels::ActivationRounding rounding = {};  // of the inputs
  bool is_static = false;                     // its scale is a tensor of each module
};

struct QuantisationSettings {
  std::string path;  // of the configuration, for messages
  std::vector<WeightScheme> schemes;
  bool mixed = false;            // GPTQ: modules may have bits and groups of their own
  uint32_t zero_add = 0;         // GPTQ: 1 for files of the first version
  std::string activations = "";  // how the checkpoint's own runtime rounds them; empty: it does not
};

// One module's question to a format.
struct ModuleQuery {
  const TensorTable& tensors;
  std::string module;
  int64_t rows;
  int64_t cols;

  const Tensor* Find(std::string_view suffix) const;
  // INVALID_ARGUMENT "tensor … is missing, … demands it".
  absl::StatusOr<const Tensor*> Require(std::string_view suffix) const;
  // INVALID_ARGUMENT naming what was found and what is expected.
  absl::Status Expect(const Tensor& tensor, std::vector<std::string_view> types,
                      const std::vector<int64_t>& shape) const;
  absl::Status Wrong(const Tensor& tensor, std::string_view what) const;
  QuantisedMatrix Matrix() const;
};

struct QuantisationFormat {
  std::string_view method;  // quant_method
  absl::Status (*read)(const json::Object& config, QuantisationSettings& settings);
  // Nothing where the module's weight is plain.
  absl::StatusOr<std::optional<QuantisedMatrix>> (*find)(const QuantisationSettings& settings,
                                                         const ModuleQuery& query);
};

extern const QuantisationFormat kFp8Format;
extern const QuantisationFormat kModelOptFormat;
extern const QuantisationFormat kCompressedTensorsFormat;
extern const QuantisationFormat kGptqFormat;
extern const QuantisationFormat kAwqFormat;
extern const QuantisationFormat kMxfp4Format;
extern const QuantisationFormat kBitsAndBytesFormat;

// Pieces that formats share.
// `.weight` of e4m3 with `.weight_scale` or `.weight_scale_inv`; nothing where it is of another
// type.
absl::StatusOr<std::optional<QuantisedMatrix>> FindFp8Weight(const QuantisationSettings& settings,
                                                             const ModuleQuery& query);
// Numbers of e2m1, two to a byte, under scales of 16 (e4m3, under one of the matrix: NVFP4) or of
// 32 (exponents: MXFP4).
struct Fp4Tensors {
  const Tensor* codes = nullptr;
  int64_t group = 16;
  std::string_view scale = "weight_scale";
  std::string_view outer_scale = "";  // of groups of 16
  bool divides = false;               // the outer scale divides, else it multiplies
};
absl::StatusOr<QuantisedMatrix> FindFp4Weight(const ModuleQuery& query, const Fp4Tensors& tensors);
// A dynamic scale for `group` neighbouring inputs.
void AskForGroup(int64_t group, kernels::ActivationRounding& rounding);
// Gives the matrix the rounding of its scheme, a static one with the module's own scale.
void AddRounding(const WeightScheme& scheme, const ModuleQuery& query, QuantisedMatrix& matrix);
// The integer under `key`; `otherwise` where it is absent or null.
absl::StatusOr<int64_t> IntOr(const json::Object& object, std::string_view key, int64_t otherwise);
absl::StatusOr<std::string> TextOr(const json::Object& object, std::string_view key,
                                   std::string_view otherwise);
absl::StatusOr<bool> BoolOr(const json::Object& object, std::string_view key, bool otherwise);

class Quantisation {
 public:
  // INVALID_ARGUMENT naming method or field, what was found and what is served. `path` is for
  // messages.
  static absl::StatusOr<Quantisation> Read(const json::Object& config, const std::string& path);
  // The method that ModelOpt's own file names.
  static absl::StatusOr<Quantisation> ReadModelOpt(const json::Object& file,
                                                   const std::string& path);

  // The quantised weight [rows, cols] of a module, or nothing where it has a plain one or none.
  absl::StatusOr<std::optional<QuantisedMatrix>> Find(const TensorTable& tensors,
                                                      std::string_view module, int64_t rows,
                                                      int64_t cols) const;
  // "gptq, 4 bits in groups of 128", and what becomes of activations that it asks to be rounded:
  // `rounded` names how a backend does so ("int8 per token"), empty: weights alone are used.
  std::string Description(std::string_view rounded) const;
  // The whole of what was read: equal texts mean equal weights for equal tensors.
  const std::string& canonical() const { return canonical_; }

 private:
  Quantisation() = default;

  const QuantisationFormat* format_ = nullptr;
  QuantisationSettings settings_;
  std::string form_;
  std::string canonical_;
};

}  // namespace quire::load
