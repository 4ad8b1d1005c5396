// AWQ's GEMM layout: words hold eight outputs of one input, in an order of their own.
#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "common/status.h"
#include "worker/load/quantisation.h"

namespace quire::load {
namespace {

constexpr int kCodesPerWord = 8;

absl::Status ReadAwq(const json::Object& config, QuantisationSettings& settings) {
  QUIRE_ASSIGN_OR_RETURN(const std::string version, TextOr(config, "version", "gemm"));
  if (absl::AsciiStrToLower(version) != "gemm") {
    return absl::InvalidArgumentError(
        absl::StrCat("version \"", version, "\" is not served; \"gemm\" is: save the model in it"));
  }
  // AutoAWQ's own spelling, then that of older files.
  QUIRE_ASSIGN_OR_RETURN(const int64_t older_bits, IntOr(config, "w_bit", 4));
  QUIRE_ASSIGN_OR_RETURN(const int64_t bits, IntOr(config, "bits", older_bits));
  if (bits != 4) return absl::InvalidArgumentError(absl::StrCat("bits is ", bits, ", served is 4"));
  QUIRE_ASSIGN_OR_RETURN(const int64_t older_group, IntOr(config, "q_group_size", 128));
  QUIRE_ASSIGN_OR_RETURN(const int64_t group, IntOr(config, "group_size", older_group));
  if (group != -1 && group < 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("group_size is ", group, ", it must be above 0, or -1 for one group"));
  }
  // The layout stores zeros in either case: without zero points, they are all 8.
  QUIRE_RETURN_IF_ERROR(BoolOr(config, "zero_point", true).status());
  settings.schemes.push_back({.bits = 4, .group = group == -1 ? 0 : group, .symmetric = false});
  return absl::OkStatus();
}

absl::StatusOr<std::optional<QuantisedMatrix>> FindAwq(const QuantisationSettings& settings,
                                                       const ModuleQuery& query) {
  const Tensor* codes = query.Find("qweight");
  if (codes == nullptr) return std::nullopt;
  const WeightScheme& scheme = settings.schemes.front();
  const int64_t group = scheme.group == 0 ? query.cols : scheme.group;
  const int64_t groups = (query.cols + group - 1) / group;
  const int64_t words = query.rows / kCodesPerWord;
  if (query.rows % kCodesPerWord != 0) {
    return query.Wrong(*codes, absl::StrCat("packs ", query.rows,
                                            " outputs, expected a multiple of ", kCodesPerWord));
  }
  QUIRE_RETURN_IF_ERROR(query.Expect(*codes, {"I32"}, {query.cols, words}));
  QUIRE_ASSIGN_OR_RETURN(const Tensor* scales, query.Require("scales"));
  QUIRE_RETURN_IF_ERROR(query.Expect(*scales, {"F16", "BF16", "F32"}, {groups, query.rows}));
  QUIRE_ASSIGN_OR_RETURN(const Tensor* zeros, query.Require("qzeros"));
  QUIRE_RETURN_IF_ERROR(query.Expect(*zeros, {"I32"}, {groups, words}));
  QuantisedMatrix matrix = query.Matrix();
  matrix.codes = {.tensor = codes, .bits = 4, .line_stride = words, .interleaved = true};
  matrix.lines_are_inputs = true;
  matrix.scales.tensor = scales;
  matrix.scale_row_stride = 1;
  matrix.scale_group_stride = query.rows;
  matrix.group = group;
  matrix.zeros = {.tensor = zeros, .bits = 4, .line_stride = words, .interleaved = true};
  return matrix;
}

}  // namespace

const QuantisationFormat kAwqFormat = {"awq", ReadAwq, FindAwq};

}  // namespace quire::load
