#include "worker/load/quantisation.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/status.h"

namespace quire::load {
namespace {

// The methods that are served, one line for each.
constexpr const QuantisationFormat* kFormats[] = {
    &kFp8Format, &kModelOptFormat, &kCompressedTensorsFormat, &kGptqFormat,
    &kAwqFormat, &kMxfp4Format,    &kBitsAndBytesFormat,
};

std::string ServedMethods() {
  std::vector<absl::string_view> names;
  for (const QuantisationFormat* format : kFormats) names.push_back(AbslView(format->method));
  return absl::StrJoin(names, ", ");
}

std::string NumbersOf(const WeightScheme& scheme) {
  switch (scheme.kind) {
    case CodeKind::kE4m3:
      return "e4m3";
    case CodeKind::kE2m1:
      return "e2m1";
    case CodeKind::kNf4:
      return "nf4";
    case CodeKind::kFp4:
      return "fp4";
    case CodeKind::kInteger:
      break;
  }
  return absl::StrCat(scheme.bits, " bits");
}

std::string Describe(const WeightScheme& scheme) {
  std::string text = NumbersOf(scheme);
  // Each matrix of bitsandbytes names its own block.
  if (scheme.kind == CodeKind::kNf4 || scheme.kind == CodeKind::kFp4) return text;
  if (scheme.block_rows > 1) {
    return absl::StrCat(text, " in blocks of ", scheme.block_rows, " × ", scheme.group);
  }
  if (scheme.group > 0) return absl::StrCat(text, " in groups of ", scheme.group);
  return absl::StrCat(text, scheme.block_rows == 0 ? " by tensor" : " by row");
}

std::string Describe(std::string_view method, const QuantisationSettings& settings) {
  std::vector<std::string> schemes;
  for (const WeightScheme& scheme : settings.schemes) schemes.push_back(Describe(scheme));
  return absl::StrCat(AbslView(method), ", ", absl::StrJoin(schemes, " and "));
}

}  // namespace

const Tensor* ModuleQuery::Find(std::string_view suffix) const {
  return tensors.Find(absl::StrCat(module, ".", AbslView(suffix)));
}

absl::StatusOr<const Tensor*> ModuleQuery::Require(std::string_view suffix) const {
  const Tensor* tensor = Find(suffix);
  if (tensor != nullptr) return tensor;
  return absl::InvalidArgumentError(absl::StrCat("tensor \"", module, ".", AbslView(suffix),
                                                 "\" is missing, the quantised weight of \"",
                                                 module, "\" demands it"));
}

absl::Status ModuleQuery::Wrong(const Tensor& tensor, std::string_view what) const {
  return absl::InvalidArgumentError(
      absl::StrCat(tensor.file, ": tensor \"", tensor.name, "\" ", AbslView(what)));
}

absl::Status ModuleQuery::Expect(const Tensor& tensor, std::vector<std::string_view> types,
                                 const std::vector<int64_t>& shape) const {
  if (std::ranges::find(types, tensor.type_name) == types.end()) {
    std::vector<absl::string_view> names;
    for (std::string_view type : types) names.push_back(AbslView(type));
    return Wrong(tensor, absl::StrCat("has type ", tensor.type_name, ", expected ",
                                      absl::StrJoin(names, " or ")));
  }
  if (tensor.shape == shape) return absl::OkStatus();
  return Wrong(tensor, absl::StrCat("has shape ", tensor.ShapeText(), ", expected [",
                                    absl::StrJoin(shape, ", "), "]"));
}

QuantisedMatrix ModuleQuery::Matrix() const {
  QuantisedMatrix matrix;
  matrix.module = module;
  matrix.rows = rows;
  matrix.cols = cols;
  return matrix;
}

namespace {

// The only number of a tensor of floats; nothing where it is no such tensor.
std::optional<float> OnlyNumber(const Tensor& tensor) {
  const bool one = tensor.shape.empty() || tensor.shape == std::vector<int64_t>{1};
  if (!one || !tensor.type.has_value()) return std::nullopt;
  return FloatElement(tensor, 0);
}

}  // namespace

void AddRounding(const WeightScheme& scheme, const ModuleQuery& query, QuantisedMatrix& matrix) {
  using Code = kernels::ActivationRounding::Code;
  matrix.rounding = scheme.rounding;
  if (!scheme.is_static || scheme.rounding.code == Code::kNone) return;
  const auto refuse = [&matrix](const char* what) {
    matrix.rounding.code = Code::kNone;
    matrix.rounding.unserved = what;
  };
  const Tensor* tensor = query.Find("input_scale");
  if (tensor == nullptr) tensor = query.Find("activation_scale");
  const std::optional<float> scale = tensor == nullptr ? std::nullopt : OnlyNumber(*tensor);
  if (!scale.has_value()) return refuse("a static scale, without an input_scale of one number");
  if (!std::isnormal(*scale) || *scale < 0.0f) {
    return refuse("an input_scale that is no finite number above 0");
  }
  matrix.rounding.scale = *scale;
  if (scheme.rounding.symmetric) return;
  const Tensor* zero = query.Find("input_zero_point");
  if (zero == nullptr || zero->type_name != "I8" || zero->bytes.size() != 1) {
    return refuse("a static zero, without an input_zero_point of one int8");
  }
  matrix.rounding.zero = static_cast<int>(static_cast<int8_t>(zero->bytes[0]));
}

absl::StatusOr<int64_t> IntOr(const json::Object& object, std::string_view key, int64_t otherwise) {
  const json::Value* value = json::Find(object, key);
  if (value == nullptr) return otherwise;
  return json::AsInt(*value, key);
}

absl::StatusOr<std::string> TextOr(const json::Object& object, std::string_view key,
                                   std::string_view otherwise) {
  const json::Value* value = json::Find(object, key);
  if (value == nullptr) return std::string(otherwise);
  QUIRE_ASSIGN_OR_RETURN(const std::string_view text, json::AsString(*value, key));
  return std::string(text);
}

absl::StatusOr<bool> BoolOr(const json::Object& object, std::string_view key, bool otherwise) {
  const json::Value* value = json::Find(object, key);
  if (value == nullptr) return otherwise;
  return json::AsBool(*value, key);
}

absl::StatusOr<Quantisation> Quantisation::Read(const json::Object& config,
                                                const std::string& path) {
  const std::string where = absl::StrCat(path, ": quantization_config");
  absl::StatusOr<std::string> method = TextOr(config, "quant_method", "");
  if (!method.ok()) return Annotate(method.status(), where);
  Quantisation result;
  for (const QuantisationFormat* format : kFormats) {
    if (*method == format->method) result.format_ = format;
  }
  if (result.format_ == nullptr) {
    return absl::InvalidArgumentError(absl::StrCat(where, ": quant_method \"", *method,
                                                   "\" is not served; served are ", ServedMethods(),
                                                   ", and GGUF files"));
  }
  result.settings_.path = path;
  absl::Status read = result.format_->read(config, result.settings_);
  for (const WeightScheme& scheme : result.settings_.schemes) {
    if (read.ok() && std::max(scheme.group, scheme.block_rows) > kMaxTensorDimension) {
      read = InvalidArgument("a group or block is larger than any tensor");
    }
  }
  if (!read.ok()) return Annotate(read, where);
  result.form_ = Describe(result.format_->method, result.settings_);
  result.canonical_ = json::Serialize(config);
  return result;
}

absl::StatusOr<Quantisation> Quantisation::ReadModelOpt(const json::Object& file,
                                                        const std::string& path) {
  const json::Value* inner = json::Find(file, "quantization");
  if (inner == nullptr || !inner->is_object()) {
    return absl::InvalidArgumentError(absl::StrCat(path, ": needs an object \"quantization\""));
  }
  json::Object config = inner->as_object();
  config["quant_method"] = "modelopt";
  return Read(config, path);
}

std::string Quantisation::Description(std::string_view rounded) const {
  if (!rounded.empty()) return absl::StrCat(form_, ", activations ", AbslView(rounded));
  if (settings_.activations.empty()) return form_;
  return absl::StrCat(form_, ", weights only (", settings_.activations,
                      " activations are not applied)");
}

absl::StatusOr<std::optional<QuantisedMatrix>> Quantisation::Find(const TensorTable& tensors,
                                                                  std::string_view module,
                                                                  int64_t rows,
                                                                  int64_t cols) const {
  return format_->find(settings_, {tensors, std::string(module), rows, cols});
}

}  // namespace quire::load
