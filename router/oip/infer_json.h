// The JSON bodies of the Open Inference Protocol over REST: tensors of /infer, and the flat form of
// /generate and /generate_stream.
//
// Pure; any thread. Bodies are hostile: size, depth and counts are bounded, an error names the
// field.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "router/oip/infer_answer.h"
#include "router/oip/infer_request.h"

namespace quire::oip {

// The parts of the path.
struct ModelPath {
  std::string model;
  std::string version;
};

// A body of /infer: JSON, followed by the bytes of tensors whose JSON states how many bytes are
// theirs (Triton's binary tensor data extension).
struct InferBody {
  std::string_view bytes;
  // Inference-Header-Content-Length as it came: how many bytes are JSON. Empty: all.
  std::string_view json_length;
};

// nullopt: `out` holds the request. Parsed values end with the call.
std::optional<ApiError> ReadInferJson(const InferBody& body, const ModelPath& path,
                                      const RequestLimits& limits, InferRequest& out);

struct GenerateBody {
  InferRequest request;
  bool details = false;  // why the choice ended, in the specification's words
};
// Tensors are members here, and sampling parameters are members beside them or in `parameters`.
std::optional<ApiError> ReadGenerateJson(std::string_view body, const ModelPath& path,
                                         Answering answering, const RequestLimits& limits,
                                         GenerateBody& out);

struct InferText {
  std::string body;
  size_t json_bytes = 0;  // bytes of JSON; the tensors that were requested as bytes follow
};
InferText InferJson(const InferRequest& request, const std::vector<OutputTensor>& outputs);
// One response of /generate, or one event's data of /generate_stream.
std::string GenerateJson(const GenerateBody& body, const std::vector<OutputTensor>& outputs,
                         const InferAnswer& answer);
// Lists the tensors of a model, as GET of the model does.
std::string ModelJson(std::string_view name);
// {"error":"…"}
std::string ErrorText(const ApiError& error);

}  // namespace quire::oip
