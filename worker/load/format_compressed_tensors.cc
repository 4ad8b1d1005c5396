// compressed-tensors: float-quantized, int-quantized, pack-quantized, nvfp4-pack-quantized and
// mxfp4-pack-quantized weights.
#include <algorithm>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "common/status.h"
#include "worker/load/quantisation.h"

namespace quire::load {
namespace {

constexpr std::string_view kServedFormats[] = {
    "float-quantized", "int-quantized",        "naive-quantized",      "pack-quantized",
    "dense",           "nvfp4-pack-quantized", "mxfp4-pack-quantized", "mixed-precision"};

absl::Status CheckFormat(const json::Object& config) {
  QUIRE_ASSIGN_OR_RETURN(const std::string format, TextOr(config, "format", "dense"));
  if (std::ranges::find(kServedFormats, format) != std::end(kServedFormats)) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(
      absl::StrCat("format \"", format,
                   "\" is not served; float-quantized, int-quantized, pack-quantized, "
                   "nvfp4-pack-quantized and mxfp4-pack-quantized are"));
}

absl::Status ReadStrategy(const json::Object& weights, WeightScheme& scheme) {
  QUIRE_ASSIGN_OR_RETURN(scheme.group, IntOr(weights, "group_size", 0));
  const std::string_view otherwise = scheme.group > 0 ? "group" : "tensor";
  QUIRE_ASSIGN_OR_RETURN(const std::string strategy, TextOr(weights, "strategy", otherwise));
  if (strategy == "group" && scheme.group >= 1) return absl::OkStatus();
  scheme.group = 0;
  if (strategy == "channel") return absl::OkStatus();
  scheme.block_rows = 0;
  if (strategy == "tensor") return absl::OkStatus();
  if (strategy != "block") {
    return absl::InvalidArgumentError(
        absl::StrCat("strategy \"", strategy,
                     "\" is not served; tensor, channel, group with a group_size, and block are"));
  }
  const json::Value* value = json::Find(weights, "block_structure");
  if (value == nullptr) return InvalidArgument("strategy \"block\" needs a block_structure");
  QUIRE_ASSIGN_OR_RETURN(const json::Array* sizes, json::AsArray(*value, "block_structure"));
  if (sizes->size() != 2) return InvalidArgument("block_structure must have two numbers");
  QUIRE_ASSIGN_OR_RETURN(scheme.block_rows, json::AsInt((*sizes)[0], "block_structure"));
  QUIRE_ASSIGN_OR_RETURN(scheme.group, json::AsInt((*sizes)[1], "block_structure"));
  if (scheme.block_rows >= 1 && scheme.group >= 1) return absl::OkStatus();
  return InvalidArgument("block_structure must hold numbers above 0");
}

// Numbers of e2m1: 16 of NVFP4 or 32 of MXFP4 share a scale.
absl::Status ReadFp4(const json::Object& weights, WeightScheme& scheme) {
  QUIRE_ASSIGN_OR_RETURN(scheme.group, IntOr(weights, "group_size", 16));
  if (scheme.symmetric && (scheme.group == 16 || scheme.group == 32)) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("weights of 4 bits of type \"float\" in groups of ", scheme.group,
                   scheme.symmetric ? "" : " with zeros",
                   " are not served; symmetric ones in groups of 16 (NVFP4) or 32 (MXFP4) are"));
}

// `dynamic` is true, false, or "local" of formats that are not served.
absl::StatusOr<bool> IsDynamic(const json::Object& input) {
  const json::Value* value = json::Find(input, "dynamic");
  if (value == nullptr || !value->is_string()) return BoolOr(input, "dynamic", false);
  return true;
}

absl::Status ReadInputs(const json::Object& input, WeightScheme& scheme,
                        QuantisationSettings& settings) {
  using Code = kernels::ActivationRounding::Code;
  QUIRE_ASSIGN_OR_RETURN(const bool dynamic, IsDynamic(input));
  QUIRE_ASSIGN_OR_RETURN(const std::string type, TextOr(input, "type", "int"));
  QUIRE_ASSIGN_OR_RETURN(const int64_t bits, IntOr(input, "num_bits", 8));
  QUIRE_ASSIGN_OR_RETURN(const bool symmetric, BoolOr(input, "symmetric", true));
  QUIRE_ASSIGN_OR_RETURN(const int64_t group, IntOr(input, "group_size", 0));
  QUIRE_ASSIGN_OR_RETURN(const std::string strategy,
                         TextOr(input, "strategy", group > 0 ? "group" : "tensor"));
  settings.activations =
      absl::StrCat(dynamic ? "dynamic " : "static ", type == "float" ? "fp" : "int", bits);
  kernels::ActivationRounding& rounding = scheme.rounding;
  rounding.symmetric = symmetric || type == "float";
  scheme.is_static = !dynamic;
  if (bits != 8 || (type != "int" && type != "float")) {
    rounding.unserved = "another number of bits than 8";
  } else if (strategy == "tensor" || (strategy == "token" && dynamic)) {
    rounding.code = type == "int" ? Code::kInt8 : Code::kE4m3;
  } else if (strategy == "group" && dynamic && type == "float") {
    rounding.code = Code::kE4m3;
    AskForGroup(group, rounding);
  } else {
    rounding.unserved = "a strategy that is not served";
  }
  return absl::OkStatus();
}

absl::Status ReadGroup(const json::Value& value, QuantisationSettings& settings) {
  QUIRE_ASSIGN_OR_RETURN(const json::Object* group, json::AsObject(value, "a group"));
  QUIRE_RETURN_IF_ERROR(CheckFormat(*group));
  WeightScheme scheme;
  if (const json::Value* inputs = json::Find(*group, "input_activations")) {
    QUIRE_ASSIGN_OR_RETURN(const json::Object* input, json::AsObject(*inputs, "input_activations"));
    QUIRE_RETURN_IF_ERROR(ReadInputs(*input, scheme, settings));
  }
  const json::Value* found = json::Find(*group, "weights");
  if (found == nullptr) return absl::OkStatus();
  QUIRE_ASSIGN_OR_RETURN(const json::Object* weights, json::AsObject(*found, "weights"));
  QUIRE_ASSIGN_OR_RETURN(const int64_t bits, IntOr(*weights, "num_bits", 8));
  QUIRE_ASSIGN_OR_RETURN(const std::string type, TextOr(*weights, "type", "int"));
  const bool is_float = type == "float";
  if ((!is_float && type != "int") || bits < 2 || bits > 8 ||
      (is_float && bits != 4 && bits != 8)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "weights of ", bits, " bits of type \"", type,
        "\" are not served; \"float\" of 4 and 8 bits and \"int\" of 2 to 8 bits are"));
  }
  if (is_float) scheme.kind = bits == 4 ? CodeKind::kE2m1 : CodeKind::kE4m3;
  scheme.bits = static_cast<int>(bits);
  QUIRE_ASSIGN_OR_RETURN(scheme.symmetric, BoolOr(*weights, "symmetric", true));
  QUIRE_RETURN_IF_ERROR(scheme.kind == CodeKind::kE2m1 ? ReadFp4(*weights, scheme)
                                                       : ReadStrategy(*weights, scheme));
  settings.schemes.push_back(scheme);
  return absl::OkStatus();
}

absl::Status ReadCompressedTensors(const json::Object& config, QuantisationSettings& settings) {
  QUIRE_RETURN_IF_ERROR(CheckFormat(config));
  const json::Value* groups = json::Find(config, "config_groups");
  if (groups == nullptr) return InvalidArgument("config_groups is missing");
  QUIRE_ASSIGN_OR_RETURN(const json::Object* object, json::AsObject(*groups, "config_groups"));
  for (const auto& member : *object) {
    const std::string name(member.key().data(), member.key().size());
    absl::Status read = ReadGroup(member.value(), settings);
    if (!read.ok()) return Annotate(read, name);
  }
  if (settings.schemes.empty()) return InvalidArgument("config_groups names no weights");
  return absl::OkStatus();
}

// Where the scales of `scheme` lie; their shape is to be [*, groups].
int64_t PlaceScales(const WeightScheme& scheme, const Tensor& scales, const ModuleQuery& query,
                    QuantisedMatrix& matrix) {
  matrix.scales.tensor = &scales;
  matrix.group = scheme.group > 0 ? scheme.group : query.cols;
  const int64_t groups = (query.cols + matrix.group - 1) / matrix.group;
  matrix.rows_per_scale = scheme.block_rows > 0 ? scheme.block_rows : query.rows;
  matrix.scale_row_stride = groups;
  matrix.scale_group_stride = 1;
  return groups;
}

std::vector<int64_t> ScaleShape(const QuantisedMatrix& matrix, const Tensor& scales,
                                int64_t groups) {
  if (matrix.rows_per_scale == matrix.rows && groups == 1 && scales.shape.size() <= 1) {
    return scales.shape.empty() ? scales.shape : std::vector<int64_t>{1};
  }
  return {(matrix.rows + matrix.rows_per_scale - 1) / matrix.rows_per_scale, groups};
}

const std::vector<std::string_view> kFloats = {"F32", "BF16", "F16"};

// `.weight` of I8.
absl::StatusOr<std::optional<QuantisedMatrix>> FindBytes(const QuantisationSettings& settings,
                                                         const ModuleQuery& query,
                                                         const Tensor& weight) {
  QUIRE_RETURN_IF_ERROR(query.Expect(weight, {"I8"}, {query.rows, query.cols}));
  QUIRE_ASSIGN_OR_RETURN(const Tensor* scales, query.Require("weight_scale"));
  absl::Status last = query.Wrong(weight, "is of integers, the configuration names none");
  for (const WeightScheme& scheme : settings.schemes) {
    if (scheme.kind != CodeKind::kInteger) continue;
    QuantisedMatrix matrix = query.Matrix();
    matrix.codes = {.tensor = &weight, .bits = 8, .word_bytes = 1, .line_stride = query.cols};
    matrix.flipped = 0x80;
    matrix.zero = 0x80;
    const int64_t groups = PlaceScales(scheme, *scales, query, matrix);
    last = query.Expect(*scales, kFloats, ScaleShape(matrix, *scales, groups));
    if (!last.ok()) continue;
    if (!scheme.symmetric) {
      QUIRE_ASSIGN_OR_RETURN(const Tensor* zeros, query.Require("weight_zero_point"));
      if (scheme.block_rows != 1) {
        return query.Wrong(*zeros, "belongs to a whole tensor, served are zeros by row or group");
      }
      QUIRE_RETURN_IF_ERROR(query.Expect(*zeros, {"I8"}, {query.rows, groups}));
      matrix.zeros = {
          .tensor = zeros, .bits = 8, .word_bytes = 1, .line_stride = 1, .word_stride = groups};
    }
    AddRounding(scheme, query, matrix);
    return matrix;
  }
  return last;
}

absl::Status CheckShapeTensor(const ModuleQuery& query) {
  const Tensor* shape = query.Find("weight_shape");
  if (shape == nullptr) return absl::OkStatus();
  if (shape->type_name == "I32") return query.Expect(*shape, {"I32"}, {2});
  QUIRE_RETURN_IF_ERROR(query.Expect(*shape, {"I64"}, {2}));
  int64_t sizes[2];
  std::memcpy(sizes, shape->bytes.data(), sizeof(sizes));
  if (sizes[0] == query.rows && sizes[1] == query.cols) return absl::OkStatus();
  return query.Wrong(*shape, absl::StrCat("holds [", sizes[0], ", ", sizes[1], "], expected [",
                                          query.rows, ", ", query.cols, "]"));
}

absl::Status ReadPackedZeros(const ModuleQuery& query, int64_t groups, QuantisedMatrix& matrix) {
  QUIRE_ASSIGN_OR_RETURN(const Tensor* zeros, query.Require("weight_zero_point"));
  const int64_t words = (query.rows * matrix.codes.bits + 31) / 32;
  QUIRE_RETURN_IF_ERROR(query.Expect(*zeros, {"I32"}, {words, groups}));
  matrix.zeros = {
      .tensor = zeros, .bits = matrix.codes.bits, .line_stride = 1, .word_stride = groups};
  return absl::OkStatus();
}

// Files of older versions give each input's group; −1 for all means that there is no order.
absl::Status ReadOrder(const ModuleQuery& query, int64_t groups, QuantisedMatrix& matrix) {
  const Tensor* order = query.Find("weight_g_idx");
  if (order == nullptr) return absl::OkStatus();
  QUIRE_RETURN_IF_ERROR(query.Expect(*order, {"I32"}, {query.cols}));
  std::vector<int32_t> group_of(static_cast<size_t>(query.cols));
  std::memcpy(group_of.data(), order->bytes.data(), order->bytes.size());
  if (std::ranges::all_of(group_of, [](int32_t index) { return index == -1; })) {
    return absl::OkStatus();
  }
  bool runs = true;
  for (int64_t i = 0; i < query.cols; ++i) {
    const int32_t index = group_of[static_cast<size_t>(i)];
    if (index < 0 || index >= groups) {
      return query.Wrong(*order, absl::StrCat("holds ", index, " at ", i,
                                              ", expected a group of 0 to ", groups - 1));
    }
    runs = runs && index == i / matrix.group;
  }
  if (!runs) matrix.group_of_input = std::move(group_of);
  return absl::OkStatus();
}

absl::StatusOr<std::optional<QuantisedMatrix>> FindPacked(const QuantisationSettings& settings,
                                                          const ModuleQuery& query,
                                                          const Tensor& packed) {
  QUIRE_RETURN_IF_ERROR(CheckShapeTensor(query));
  QUIRE_ASSIGN_OR_RETURN(const Tensor* scales, query.Require("weight_scale"));
  absl::Status last = query.Wrong(packed, "is of integers, the configuration names none");
  for (const WeightScheme& scheme : settings.schemes) {
    if (scheme.kind != CodeKind::kInteger) continue;
    const int64_t words = (query.cols * scheme.bits + 31) / 32;
    QuantisedMatrix matrix = query.Matrix();
    matrix.codes = {.tensor = &packed, .bits = scheme.bits, .line_stride = words};
    matrix.zero = 1u << (scheme.bits - 1);
    const int64_t groups = PlaceScales(scheme, *scales, query, matrix);
    last = query.Expect(packed, {"I32"}, {query.rows, words});
    if (last.ok()) last = query.Expect(*scales, kFloats, ScaleShape(matrix, *scales, groups));
    if (!last.ok()) continue;
    if (!scheme.symmetric) QUIRE_RETURN_IF_ERROR(ReadPackedZeros(query, groups, matrix));
    QUIRE_RETURN_IF_ERROR(ReadOrder(query, groups, matrix));
    AddRounding(scheme, query, matrix);
    return matrix;
  }
  return last;
}

absl::StatusOr<std::optional<QuantisedMatrix>> FindFp4(const QuantisationSettings& settings,
                                                       const ModuleQuery& query,
                                                       const Tensor& packed) {
  absl::Status last = query.Wrong(packed, "is of e2m1, the configuration names none");
  for (const WeightScheme& scheme : settings.schemes) {
    if (scheme.kind != CodeKind::kE2m1) continue;
    Fp4Tensors tensors{.codes = &packed, .group = scheme.group};
    if (scheme.group == 16) tensors.outer_scale = "weight_global_scale";
    tensors.divides = true;
    absl::StatusOr<QuantisedMatrix> found = FindFp4Weight(query, tensors);
    if (found.ok()) return *std::move(found);
    last = found.status();
  }
  return last;
}

absl::StatusOr<std::optional<QuantisedMatrix>> FindCompressed(const QuantisationSettings& settings,
                                                              const ModuleQuery& query) {
  if (const Tensor* packed = query.Find("weight_packed")) {
    return packed->type_name == "U8" ? FindFp4(settings, query, *packed)
                                     : FindPacked(settings, query, *packed);
  }
  const Tensor* weight = query.Find("weight");
  if (weight != nullptr && weight->type_name == "I8") return FindBytes(settings, query, *weight);
  return FindFp8Weight(settings, query);
}

}  // namespace

const QuantisationFormat kCompressedTensorsFormat = {"compressed-tensors", ReadCompressedTensors,
                                                     FindCompressed};

}  // namespace quire::load
