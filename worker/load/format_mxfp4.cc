// MXFP4 as gpt-oss is published: the experts of a layer are one tensor of blocks and one of scales,
// which belong to no single module. The builder of gpt-oss' programs reads them by name.
#include "worker/load/quantisation.h"

namespace quire::load {
namespace {

absl::Status ReadMxfp4(const json::Object& /*config*/, QuantisationSettings& settings) {
  settings.schemes.push_back({.bits = 4, .group = 32});
  return absl::OkStatus();
}

absl::StatusOr<std::optional<QuantisedMatrix>> FindNone(const QuantisationSettings& /*settings*/,
                                                        const ModuleQuery& /*query*/) {
  return std::nullopt;
}

}  // namespace

extern const QuantisationFormat kMxfp4Format{"mxfp4", ReadMxfp4, FindNone};

}  // namespace quire::load
