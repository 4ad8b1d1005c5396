// FP8 (e4m3) weights: quant_method fp8 (DeepSeek, Qwen, Mistral, AutoFP8), and what other formats
// share with it.
#include <cmath>

#include "absl/strings/str_cat.h"
#include "common/status.h"
#include "kernels/grouped_blocks.h"
#include "worker/load/quantisation.h"

namespace quire::load {
namespace {

// [128, 128] or nothing.
absl::Status ReadBlock(const json::Object& config, WeightScheme& scheme) {
  scheme.block_rows = 0;
  const json::Value* value = json::Find(config, "weight_block_size");
  if (value == nullptr) return absl::OkStatus();
  QUIRE_ASSIGN_OR_RETURN(const json::Array* sizes, json::AsArray(*value, "weight_block_size"));
  if (sizes->size() != 2) return InvalidArgument("weight_block_size must have two numbers");
  QUIRE_ASSIGN_OR_RETURN(scheme.block_rows, json::AsInt((*sizes)[0], "weight_block_size"));
  QUIRE_ASSIGN_OR_RETURN(scheme.group, json::AsInt((*sizes)[1], "weight_block_size"));
  if (scheme.block_rows >= 1 && scheme.group >= 1) return absl::OkStatus();
  return InvalidArgument("weight_block_size must hold numbers above 0");
}

absl::Status ReadFp8(const json::Object& config, QuantisationSettings& settings) {
  QUIRE_ASSIGN_OR_RETURN(const std::string format, TextOr(config, "fmt", "e4m3"));
  if (format != "e4m3") {
    return absl::InvalidArgumentError(
        absl::StrCat("fmt \"", format, "\" is not served; \"e4m3\" is"));
  }
  QUIRE_ASSIGN_OR_RETURN(const std::string scheme, TextOr(config, "activation_scheme", "dynamic"));
  if (scheme != "dynamic" && scheme != "static") {
    return absl::InvalidArgumentError(absl::StrCat(
        "activation_scheme \"", scheme, "\" is not served; \"dynamic\" and \"static\" are"));
  }
  settings.activations = scheme + " fp8";
  WeightScheme weights{.kind = CodeKind::kE4m3};
  QUIRE_RETURN_IF_ERROR(ReadBlock(config, weights));
  weights.rounding.code = kernels::ActivationRounding::Code::kE4m3;
  weights.is_static = scheme == "static";
  // Blocks of weights meet groups of inputs that are as long.
  if (!weights.is_static && weights.group > 0) AskForGroup(weights.group, weights.rounding);
  settings.schemes.push_back(weights);
  return absl::OkStatus();
}

}  // namespace

void AskForGroup(int64_t group, kernels::ActivationRounding& rounding) {
  rounding.group = group;
  if (group == kernels::kRoundedGroup) return;
  rounding.code = kernels::ActivationRounding::Code::kNone;
  rounding.unserved = "a scale for another number of inputs than 128";
}

namespace {

absl::StatusOr<std::optional<QuantisedMatrix>> FindE4m3(const QuantisationSettings& settings,
                                                        const ModuleQuery& query) {
  const Tensor* weight = query.Find("weight");
  if (weight == nullptr || (weight->type_name != "F8_E4M3" && weight->type_name != "F8_E5M2")) {
    return std::nullopt;
  }
  QUIRE_RETURN_IF_ERROR(query.Expect(*weight, {"F8_E4M3"}, {query.rows, query.cols}));
  const Tensor* scale = query.Find("weight_scale_inv");
  if (scale == nullptr) {
    QUIRE_ASSIGN_OR_RETURN(scale, query.Require("weight_scale"));
  }
  QuantisedMatrix matrix = query.Matrix();
  matrix.kind = CodeKind::kE4m3;
  matrix.codes = {.tensor = weight, .bits = 8, .word_bytes = 1, .line_stride = query.cols};
  matrix.scales.tensor = scale;
  const std::vector<std::string_view> floats = {"F32", "BF16", "F16"};
  const WeightScheme* first = nullptr;
  for (const WeightScheme& scheme : settings.schemes) {
    if (scheme.kind != CodeKind::kE4m3) continue;
    if (first == nullptr) first = &scheme;
    const int64_t group = scheme.group > 0 ? scheme.group : query.cols;
    const int64_t groups = (query.cols + group - 1) / group;
    const int64_t block_rows = scheme.block_rows > 0 ? scheme.block_rows : query.rows;
    const std::vector<int64_t> blocks = {(query.rows + block_rows - 1) / block_rows, groups};
    matrix.group = group;
    matrix.rows_per_scale = block_rows;
    matrix.scale_row_stride = groups;
    matrix.scale_group_stride = 1;
    if (!query.Expect(*scale, floats, blocks).ok()) continue;
    AddRounding(scheme, query, matrix);
    return matrix;
  }
  if (first != nullptr) AddRounding(*first, query, matrix);
  // One scale, or one for each row, says itself which it is.
  matrix.group = query.cols;
  matrix.scale_group_stride = 0;
  const bool one = scale->shape.empty() || scale->shape == std::vector<int64_t>{1};
  matrix.rows_per_scale = one ? query.rows : 1;
  matrix.scale_row_stride = 1;
  const bool by_row = scale->shape == std::vector<int64_t>{query.rows};
  const std::vector<int64_t> expected =
      one || by_row ? scale->shape : std::vector<int64_t>{query.rows, 1};
  QUIRE_RETURN_IF_ERROR(query.Expect(*scale, floats, expected));
  return matrix;
}

// Kernels need scales below a limit (kernels/grouped_blocks.h), which those of models are.
bool HasLargeScales(const QuantisedMatrix& matrix) {
  const auto count = static_cast<int64_t>(matrix.scales.tensor->bytes.size()) /
                     kernels::BlockBytes(*matrix.scales.tensor->type);
  for (int64_t i = 0; i < count; ++i) {
    if (std::fabs(matrix.scales.At(i)) >= kernels::grouped::kF8ScaleLimit) return true;
  }
  return false;
}

}  // namespace

absl::StatusOr<std::optional<QuantisedMatrix>> FindFp8Weight(const QuantisationSettings& settings,
                                                             const ModuleQuery& query) {
  absl::StatusOr<std::optional<QuantisedMatrix>> found = FindE4m3(settings, query);
  if (found.ok() && found->has_value()) (*found)->large_scales = HasLargeScales(**found);
  return found;
}

const QuantisationFormat kFp8Format = {"fp8", ReadFp8, FindFp8Weight};

}  // namespace quire::load
