// GPTQ: qweight holds consecutive inputs of one output in each word, qzeros and scales lie by
// group.
#include <cstring>

#include "absl/strings/str_cat.h"
#include "common/status.h"
#include "worker/load/quantisation.h"

namespace quire::load {
namespace {

bool IsServed(int64_t bits) { return bits == 2 || bits == 3 || bits == 4 || bits == 8; }

// `dynamic` may give modules bits and groups of their own, which their tensors show; not a zero
// that they do not.
absl::Status CheckOverrides(const json::Object& config, QuantisationSettings& settings) {
  const json::Value* dynamic = json::Find(config, "dynamic");
  if (dynamic == nullptr) return absl::OkStatus();
  QUIRE_ASSIGN_OR_RETURN(const json::Object* overrides, json::AsObject(*dynamic, "dynamic"));
  settings.mixed = !overrides->empty();
  for (const auto& member : *overrides) {
    if (!member.value().is_object()) continue;
    QUIRE_ASSIGN_OR_RETURN(const bool symmetric, BoolOr(member.value().as_object(), "sym",
                                                        settings.schemes.front().symmetric));
    if (symmetric == settings.schemes.front().symmetric) continue;
    return InvalidArgument("dynamic: another sym for some modules is not served; one for all is");
  }
  return absl::OkStatus();
}

absl::Status ReadGptq(const json::Object& config, QuantisationSettings& settings) {
  QUIRE_ASSIGN_OR_RETURN(const std::string format, TextOr(config, "checkpoint_format", "gptq"));
  QUIRE_ASSIGN_OR_RETURN(const bool is_marlin, BoolOr(config, "is_marlin_format", false));
  if ((format != "gptq" && format != "gptq_v2") || is_marlin) {
    return absl::InvalidArgumentError(absl::StrCat(
        "checkpoint_format \"", is_marlin ? "marlin" : format,
        "\" is not served; \"gptq\" and \"gptq_v2\" are: save the model in one of them"));
  }
  settings.zero_add = format == "gptq" ? 1 : 0;
  QUIRE_ASSIGN_OR_RETURN(const int64_t bits, IntOr(config, "bits", 4));
  if (!IsServed(bits)) {
    return absl::InvalidArgumentError(absl::StrCat("bits is ", bits, ", served are 2, 3, 4 and 8"));
  }
  QUIRE_ASSIGN_OR_RETURN(const int64_t group, IntOr(config, "group_size", -1));
  if (group != -1 && group < 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("group_size is ", group, ", it must be above 0, or -1 for one group"));
  }
  WeightScheme scheme{.bits = static_cast<int>(bits), .group = group == -1 ? 0 : group};
  QUIRE_ASSIGN_OR_RETURN(scheme.symmetric, BoolOr(config, "sym", true));
  settings.schemes.push_back(scheme);
  return CheckOverrides(config, settings);
}

// Groups of inputs; left empty where they are runs of `group`.
absl::Status ReadGroups(const ModuleQuery& query, const Tensor& tensor, int64_t groups,
                        QuantisedMatrix& matrix) {
  QUIRE_RETURN_IF_ERROR(query.Expect(tensor, {"I32"}, {query.cols}));
  std::vector<int32_t> group_of(static_cast<size_t>(query.cols));
  std::memcpy(group_of.data(), tensor.bytes.data(), tensor.bytes.size());
  bool runs = true;
  for (int64_t i = 0; i < query.cols; ++i) {
    const int32_t index = group_of[static_cast<size_t>(i)];
    if (index < 0 || index >= groups) {
      return query.Wrong(tensor, absl::StrCat("holds ", index, " at ", i,
                                              ", expected a group of 0 to ", groups - 1));
    }
    runs = runs && index == i / matrix.group;
  }
  if (!runs) matrix.group_of_input = std::move(group_of);
  return absl::OkStatus();
}

absl::StatusOr<WeightScheme> SchemeOf(const QuantisationSettings& settings,
                                      const ModuleQuery& query, const Tensor& codes,
                                      const Tensor& scales) {
  WeightScheme scheme = settings.schemes.front();
  if (settings.mixed && codes.shape.size() == 2 && scales.shape.size() == 2) {
    const int64_t bits = codes.shape[0] * 32 / query.cols;
    if (IsServed(bits)) scheme.bits = static_cast<int>(bits);
    const int64_t groups = scales.shape[0];
    if (groups > 0 && query.cols % groups == 0) scheme.group = query.cols / groups;
  }
  if (scheme.group == 0) scheme.group = query.cols;
  if (query.cols * scheme.bits % 32 == 0) return scheme;
  return query.Wrong(codes, absl::StrCat("packs ", query.cols, " inputs of ", scheme.bits,
                                         " bits, expected whole words of 32 bits"));
}

absl::StatusOr<std::optional<QuantisedMatrix>> FindGptq(const QuantisationSettings& settings,
                                                        const ModuleQuery& query) {
  const Tensor* codes = query.Find("qweight");
  if (codes == nullptr) return std::nullopt;
  QUIRE_ASSIGN_OR_RETURN(const Tensor* scales, query.Require("scales"));
  QUIRE_ASSIGN_OR_RETURN(const WeightScheme scheme, SchemeOf(settings, query, *codes, *scales));
  const int64_t groups = (query.cols + scheme.group - 1) / scheme.group;
  QUIRE_RETURN_IF_ERROR(query.Expect(*codes, {"I32"}, {query.cols * scheme.bits / 32, query.rows}));
  QUIRE_RETURN_IF_ERROR(query.Expect(*scales, {"F16", "BF16", "F32"}, {groups, query.rows}));
  QuantisedMatrix matrix = query.Matrix();
  matrix.codes = {
      .tensor = codes, .bits = scheme.bits, .line_stride = 1, .word_stride = query.rows};
  matrix.scales.tensor = scales;
  matrix.scale_row_stride = 1;
  matrix.scale_group_stride = query.rows;
  matrix.group = scheme.group;
  // What symmetric files store as zeros differs between their writers, and means the middle.
  matrix.zero = 1u << (scheme.bits - 1);
  if (!scheme.symmetric) {
    QUIRE_ASSIGN_OR_RETURN(const Tensor* zeros, query.Require("qzeros"));
    const int64_t words = (query.rows * scheme.bits + 31) / 32;
    QUIRE_RETURN_IF_ERROR(query.Expect(*zeros, {"I32"}, {groups, words}));
    matrix.zeros = {.tensor = zeros, .bits = scheme.bits, .line_stride = words};
    matrix.zero_add = settings.zero_add;
  }
  if (const Tensor* order = query.Find("g_idx")) {
    QUIRE_RETURN_IF_ERROR(ReadGroups(query, *order, groups, matrix));
  }
  return matrix;
}

}  // namespace

const QuantisationFormat kGptqFormat = {"gptq", ReadGptq, FindGptq};

}  // namespace quire::load
