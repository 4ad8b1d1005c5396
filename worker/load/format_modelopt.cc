// ModelOpt: FP8, and NVFP4 whose scales of e4m3 are multiplied by one of the matrix.
#include "absl/strings/str_cat.h"
#include "common/status.h"
#include "worker/load/quantisation.h"

namespace quire::load {
namespace {

constexpr int64_t kNvfp4Group = 16;

absl::Status ReadModelOpt(const json::Object& config, QuantisationSettings& settings) {
  QUIRE_ASSIGN_OR_RETURN(const std::string algorithm, TextOr(config, "quant_algo", ""));
  if (algorithm == "FP8") {
    settings.activations = "static fp8";
    settings.schemes.push_back({.kind = CodeKind::kE4m3,
                                .block_rows = 0,
                                .rounding = {.code = kernels::ActivationRounding::Code::kE4m3},
                                .is_static = true});
    return absl::OkStatus();
  }
  if (algorithm != "NVFP4" && algorithm != "W4A16_NVFP4") {
    return absl::InvalidArgumentError(
        absl::StrCat("quant_algo \"", algorithm,
                     "\" is not served; \"FP8\", \"NVFP4\" and \"W4A16_NVFP4\" are"));
  }
  QUIRE_ASSIGN_OR_RETURN(const int64_t group, IntOr(config, "group_size", kNvfp4Group));
  if (group != kNvfp4Group) {
    return absl::InvalidArgumentError(
        absl::StrCat("group_size is ", group, ", served is ", kNvfp4Group));
  }
  if (algorithm == "NVFP4") settings.activations = "dynamic fp4";
  settings.schemes.push_back({.bits = 4, .kind = CodeKind::kE2m1, .group = kNvfp4Group});
  return absl::OkStatus();
}

absl::StatusOr<std::optional<QuantisedMatrix>> FindModelOpt(const QuantisationSettings& settings,
                                                            const ModuleQuery& query) {
  const Tensor* weight = query.Find("weight");
  if (weight == nullptr || weight->type_name != "U8") return FindFp8Weight(settings, query);
  if (settings.schemes.front().kind != CodeKind::kE2m1) {
    return query.Wrong(*weight, "is of e2m1, the configuration names e4m3");
  }
  if (const Tensor* inputs = query.Find("pre_quant_scale")) {
    return query.Wrong(*inputs, "scales the inputs of a product, which is not served");
  }
  return FindFp4Weight(query,
                       {.codes = weight, .group = kNvfp4Group, .outer_scale = "weight_scale_2"});
}

}  // namespace

const QuantisationFormat kModelOptFormat = {"modelopt", ReadModelOpt, FindModelOpt};

}  // namespace quire::load
