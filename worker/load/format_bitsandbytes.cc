// bitsandbytes: NF4 and FP4 in blocks that run over the rows of a matrix end to end, with floats or
// again quantised numbers for scales, and int8 with a scale for each row.
#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "common/status.h"
#include "common/utf8.h"
#include "kernels/grouped_blocks.h"
#include "worker/load/quantisation.h"

namespace quire::load {
namespace {

constexpr std::string_view kState = "weight.quant_state.bitsandbytes__";
constexpr int64_t kCodebook = 256;
constexpr size_t kMostOfAMessage = 300;
constexpr double kTableError = 1e-6;  // of a published table

// The JSON that bitsandbytes keeps in a tensor of bytes.
struct State {
  int64_t block = 0;
  int64_t outer_block = 0;  // 0: scales are floats
  float offset = 0.0f;
};

absl::Status ReadBitsAndBytes(const json::Object& config, QuantisationSettings& settings) {
  QUIRE_ASSIGN_OR_RETURN(const bool four, BoolOr(config, "load_in_4bit", false));
  QUIRE_ASSIGN_OR_RETURN(const bool eight, BoolOr(config, "load_in_8bit", false));
  if (four == eight) {
    return InvalidArgument("one of load_in_4bit and load_in_8bit must be true");
  }
  if (eight) {
    settings.activations = "dynamic int8";
    settings.schemes.push_back({.bits = 8});
    return absl::OkStatus();
  }
  QUIRE_ASSIGN_OR_RETURN(const std::string type, TextOr(config, "bnb_4bit_quant_type", "fp4"));
  if (type != "nf4" && type != "fp4") {
    return absl::InvalidArgumentError(
        absl::StrCat("bnb_4bit_quant_type \"", type, "\" is not served; \"nf4\" and \"fp4\" are"));
  }
  settings.schemes.push_back(
      {.bits = 4, .kind = type == "nf4" ? CodeKind::kNf4 : CodeKind::kFp4, .group = 64});
  return absl::OkStatus();
}

// A power of two that bitsandbytes may cut blocks of.
absl::StatusOr<int64_t> ReadBlockSize(const json::Object& object, std::string_view key) {
  QUIRE_ASSIGN_OR_RETURN(const int64_t size, IntOr(object, key, 0));
  if (size >= 32 && size <= 4096 && (size & (size - 1)) == 0) return size;
  return absl::InvalidArgumentError(
      absl::StrCat(AbslView(key), " is ", size, ", expected a power of two from 32 to 4096"));
}

absl::Status CheckShape(const json::Object& object, const ModuleQuery& query) {
  const json::Value* value = json::Find(object, "shape");
  if (value == nullptr) return InvalidArgument("has no \"shape\"");
  QUIRE_ASSIGN_OR_RETURN(const json::Array* shape, json::AsArray(*value, "shape"));
  bool right = shape->size() == 2;
  for (size_t i = 0; right && i < 2; ++i) {
    QUIRE_ASSIGN_OR_RETURN(const int64_t size, json::AsInt((*shape)[i], "shape"));
    right = size == (i == 0 ? query.rows : query.cols);
  }
  if (right) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("shape is ", json::Serialize(*value),
                                                 ", expected [", query.rows, ",", query.cols, "]"));
}

absl::StatusOr<State> ParseState(const Tensor& tensor, std::string_view type,
                                 const ModuleQuery& query) {
  const std::string_view text(reinterpret_cast<const char*>(tensor.bytes.data()),
                              tensor.bytes.size());
  json::Limits limits;
  limits.max_bytes = 1 << 16;
  limits.max_depth = 4;
  limits.max_values = 64;
  QUIRE_ASSIGN_OR_RETURN(const json::Value value, json::Parse(text, limits));
  QUIRE_ASSIGN_OR_RETURN(const json::Object* object, json::AsObject(value, "the state"));
  QUIRE_ASSIGN_OR_RETURN(const std::string named, TextOr(*object, "quant_type", ""));
  if (named != type) {
    return absl::InvalidArgumentError(
        absl::StrCat("quant_type is \"", named, "\", expected \"", AbslView(type), "\""));
  }
  QUIRE_RETURN_IF_ERROR(CheckShape(*object, query));
  State state;
  QUIRE_ASSIGN_OR_RETURN(state.block, ReadBlockSize(*object, "blocksize"));
  const json::Value* offset = json::Find(*object, "nested_offset");
  if (query.Find("weight.nested_absmax") == nullptr) {
    if (offset == nullptr) return state;
    return InvalidArgument("has a nested_offset, and the weight has no nested_absmax");
  }
  QUIRE_ASSIGN_OR_RETURN(state.outer_block, ReadBlockSize(*object, "nested_blocksize"));
  if (offset == nullptr) return InvalidArgument("has no nested_offset");
  QUIRE_ASSIGN_OR_RETURN(const double number, json::AsDouble(*offset, "nested_offset"));
  state.offset = static_cast<float>(number);
  if (std::isfinite(state.offset)) return state;
  return absl::InvalidArgumentError(
      absl::StrCat("nested_offset is ", number, ", expected a number of float32"));
}

// bitsandbytes computes with its own table whatever the file holds.
absl::Status CheckTable(const ModuleQuery& query, CodeKind kind) {
  QUIRE_ASSIGN_OR_RETURN(const Tensor* map, query.Require("weight.quant_map"));
  QUIRE_RETURN_IF_ERROR(query.Expect(*map, {"F32"}, {16}));
  const float(&table)[16] =
      kind == CodeKind::kNf4 ? kernels::grouped::kNf4Values : kernels::grouped::kFp4Values;
  for (int i = 0; i < 16; ++i) {
    const float value = FloatElement(*map, i);
    if (std::abs(static_cast<double>(value) - table[i]) <= kTableError) continue;
    return query.Wrong(*map, absl::StrCat("holds ", value, " at ", i, ", expected ", table[i]));
  }
  return absl::OkStatus();
}

absl::Status PlaceScales(const ModuleQuery& query, const State& state, QuantisedMatrix& matrix) {
  const int64_t count = (query.rows * query.cols + state.block - 1) / state.block;
  QUIRE_ASSIGN_OR_RETURN(const Tensor* scales, query.Require("weight.absmax"));
  GroupScales& to = matrix.scales;
  to.tensor = scales;
  if (state.outer_block == 0) return query.Expect(*scales, {"F32"}, {count});
  QUIRE_RETURN_IF_ERROR(query.Expect(*scales, {"U8"}, {count}));
  QUIRE_ASSIGN_OR_RETURN(to.outer, query.Require("weight.nested_absmax"));
  const int64_t outers = (count + state.outer_block - 1) / state.outer_block;
  QUIRE_RETURN_IF_ERROR(query.Expect(*to.outer, {"F32"}, {outers}));
  QUIRE_ASSIGN_OR_RETURN(to.codebook, query.Require("weight.nested_quant_map"));
  QUIRE_RETURN_IF_ERROR(query.Expect(*to.codebook, {"F32"}, {kCodebook}));
  to.kind = GroupScales::Kind::kNested;
  to.outer_group = state.outer_block;
  to.offset = state.offset;
  return absl::OkStatus();
}

absl::StatusOr<std::optional<QuantisedMatrix>> FindFourBits(const ModuleQuery& query,
                                                            const Tensor& weight,
                                                            const Tensor& state_tensor) {
  const std::string_view type =
      std::string_view(state_tensor.name).substr(query.module.size() + 1 + kState.size());
  if (type != "nf4" && type != "fp4") {
    return query.Wrong(state_tensor, "names a type that is not served; nf4 and fp4 are");
  }
  QUIRE_RETURN_IF_ERROR(query.Expect(state_tensor, {"U8"}, {std::ssize(state_tensor.bytes)}));
  const absl::StatusOr<State> state = ParseState(state_tensor, type, query);
  if (!state.ok()) {
    const std::string why = OnOneLine(StatusMessage(state.status()), kMostOfAMessage);
    return query.Wrong(state_tensor, absl::StrCat("is no state that is served: ", why));
  }
  const int64_t bytes = (query.rows * query.cols + 1) / 2;
  QUIRE_RETURN_IF_ERROR(query.Expect(weight, {"U8"}, {bytes, 1}));
  QuantisedMatrix matrix = query.Matrix();
  matrix.kind = type == "nf4" ? CodeKind::kNf4 : CodeKind::kFp4;
  QUIRE_RETURN_IF_ERROR(CheckTable(query, matrix.kind));
  QUIRE_RETURN_IF_ERROR(PlaceScales(query, *state, matrix));
  matrix.codes = {.tensor = &weight, .bits = 4, .word_bytes = 1, .high_first = true};
  matrix.flat = true;
  matrix.group = state->block;
  return matrix;
}

absl::StatusOr<std::optional<QuantisedMatrix>> FindEightBits(const ModuleQuery& query,
                                                             const Tensor& weight) {
  QUIRE_RETURN_IF_ERROR(query.Expect(weight, {"I8"}, {query.rows, query.cols}));
  QUIRE_ASSIGN_OR_RETURN(const Tensor* scales, query.Require("SCB"));
  QUIRE_RETURN_IF_ERROR(query.Expect(*scales, {"F32"}, {query.rows}));
  if (const Tensor* layout = query.Find("weight_format")) {
    QUIRE_RETURN_IF_ERROR(query.Expect(
        *layout, {"U8"}, layout->shape.empty() ? layout->shape : std::vector<int64_t>{1}));
    const int number = static_cast<int>(layout->bytes[0]);
    if (number != 0) {
      return query.Wrong(*layout, absl::StrCat("holds ", number, ", expected 0 (rows)"));
    }
  }
  QuantisedMatrix matrix = query.Matrix();
  matrix.codes = {.tensor = &weight, .bits = 8, .word_bytes = 1, .line_stride = query.cols};
  matrix.flipped = 0x80;
  matrix.zero = 0x80;
  matrix.scales.tensor = scales;
  matrix.scales.divisor = 127.0f;
  matrix.scale_row_stride = 1;
  matrix.group = query.cols;
  return matrix;
}

absl::StatusOr<std::optional<QuantisedMatrix>> FindBitsAndBytes(
    const QuantisationSettings& /*settings*/, const ModuleQuery& query) {
  const Tensor* weight = query.Find("weight");
  if (weight == nullptr) return std::nullopt;
  const std::string prefix = absl::StrCat(query.module, ".", AbslView(kState));
  const auto state = query.tensors.all().lower_bound(prefix);
  if (state != query.tensors.all().end() && state->first.starts_with(prefix)) {
    return FindFourBits(query, *weight, state->second);
  }
  if (weight->type_name == "I8") return FindEightBits(query, *weight);
  if (weight->type_name != "U8") return std::nullopt;
  return query.Require(absl::StrCat(AbslView(kState), "nf4")).status();
}

}  // namespace

const QuantisationFormat kBitsAndBytesFormat = {"bitsandbytes", ReadBitsAndBytes, FindBitsAndBytes};

}  // namespace quire::load
