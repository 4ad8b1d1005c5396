// Fuzzes requests of the Open Inference Protocol: Protobuf messages with their raw tensors, and the
// JSON of /infer, with tensors as bytes behind it, and of /generate. What is accepted is within the
// promised bounds, what is refused says why. The first byte picks the reader.
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "router/core/sampling_checks.h"
#include "router/grpc/oip/oip_messages.h"
#include "router/oip/infer_json.h"

namespace {

namespace oip = quire::oip;

void Require(bool condition) {
  if (!condition) std::abort();
}

void CheckOutcome(const std::optional<quire::ApiError>& problem, const oip::InferRequest& request) {
  if (problem) {
    Require(!problem->message.empty());
    Require(problem->code == quire::ApiCode::kInvalidArgument ||
            problem->code == quire::ApiCode::kTooLarge);
    inference::ModelStreamInferResponse response;
    oip::ToProto(request, *problem, response);
    Require(!response.error_message().empty());
    return;
  }
  Require(!request.model.empty() && request.id.size() <= oip::kMaxIdBytes);
  const quire::GenerateRequest& generate = request.generate;
  Require(generate.sampling.n == 1 && generate.streaming == request.stream);
  Require(!quire::CheckSampling(generate.sampling, generate.echo));
  if (const auto* ids = std::get_if<quire::TokenPrompt>(&generate.prompt)) {
    Require(!ids->ids.empty());
    for (const quire::TokenId id : ids->ids) Require(id >= 0);
  }
}

// With the bit set, a first line that is the header that says how much of the body is JSON.
oip::InferBody ToBody(std::string_view bytes, bool with_header) {
  const size_t end = bytes.find('\n');
  if (!with_header || end == std::string_view::npos) return {bytes, {}};
  return {bytes.substr(end + 1), bytes.substr(0, end)};
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const std::string_view bytes(reinterpret_cast<const char*>(data) + 1, size - 1);
  const auto answering = (data[0] & 0x10) != 0 ? oip::Answering::kOnce : oip::Answering::kStream;
  quire::RequestLimits limits;
  limits.max_json_depth = 16;
  switch (data[0] % 3) {
    case 0: {
      inference::ModelInferRequest message;
      if (!message.ParseFromArray(bytes.data(), static_cast<int>(bytes.size()))) return 0;
      oip::InferRequest request;
      CheckOutcome(oip::FromProto(message, answering, limits, request), request);
      break;
    }
    case 1: {
      oip::InferRequest request;
      const oip::InferBody body = ToBody(bytes, (data[0] & 0x20) != 0);
      CheckOutcome(oip::ReadInferJson(body, {"m", ""}, limits, request), request);
      break;
    }
    default: {
      oip::GenerateBody body;
      CheckOutcome(oip::ReadGenerateJson(bytes, {"m", "1"}, answering, limits, body), body.request);
    }
  }
  return 0;
}
