// Fuzzes what a worker reads from a router: any bytes give a message within its limits or an error.
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "worker/rpc/codec.h"

namespace {

void Require(bool condition) {
  if (!condition) std::abort();
}

void CheckSubmit(const quire::SubmitFrame& frame, const quire::DecodeLimits& limits) {
  const quire::Submit& submit = frame.submit;
  Require(frame.parts <= quire::kMaxSubmitParts);
  Require(!submit.choices.empty() && submit.choices.size() <= limits.max_choices);
  Require(frame.parts > 0 || !submit.prompt_ids.empty());
  for (const quire::TokenId id : submit.prompt_ids) Require(id >= 0 && id < limits.vocab_size);
  Require(quire::ValidateSamplingParams(submit.sampling, limits.vocab_size).ok());
  Require(submit.salt.size() <= quire::kMaxSaltBytes);
  Require(submit.tenant.size() <= quire::kMaxTenantBytes);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const quire::DecodeLimits limits{1000, 4};
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  const auto message = quire::DecodeRouterFrame(bytes, limits);
  if (!message.ok()) {
    Require(!message.status().message().empty());
    return 0;
  }
  if (const auto* submit = std::get_if<quire::SubmitFrame>(&*message)) CheckSubmit(*submit, limits);
  if (const auto* bad = std::get_if<quire::BadSubmit>(&*message)) {
    Require(bad->refused.code != quire::RefusalCode::kUnspecified);
    Require(!bad->refused.message.empty());
  }
  return 0;
}
