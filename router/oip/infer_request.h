// One inference request of the Open Inference Protocol: tensors and parameters become a request for
// the pipeline.
//
// Pure; any thread. Requests are hostile: an error names the tensor, parameter or sampling key.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/json/json.h"
#include "router/chat/constraint_fields.h"
#include "router/core/request_limits.h"
#include "router/oip/tensors.h"

namespace quire::oip {

// A request as it came; views are borrowed from the message.
struct InferMessage {
  std::string_view model;
  std::string_view version;
  std::string_view id;
  json::Object parameters;  // bool, integer, string and double values
  std::vector<InputTensor> inputs;
  std::vector<std::string_view> outputs;  // requested by name; empty: the inputs decide
};

// How the answer is delivered.
enum class Answering : uint8_t { kOnce, kStream };

// The outputs of an answer.
struct WantedOutputs {
  bool text = true;
  bool ids = true;
  bool finish_reason = true;
  bool cumulative_logprob = false;
  bool logprobs = false;
  bool input_count = false;
  bool output_count = false;
};

struct InferRequest {
  GenerateRequest generate;    // everything but request id, tenant and values of headers
  ConstraintDraft constraint;  // until SettleInfer moves it into `generate`
  std::string id;
  std::string model;
  WantedOutputs wanted;
  bool stream = false;       // a response for each step
  bool empty_final = false;  // the last response is one of its own, without outputs
  bool raw_outputs = true;   // outputs as raw contents, else as typed ones
  // Over REST each output states whether it comes as bytes after the JSON.
  std::map<std::string, bool, std::less<>> raw_by_name;
};

inline constexpr std::string_view kVersion = "1";  // of each model
inline constexpr size_t kMaxIdBytes = 1024;

// nullopt: `out` holds the request.
std::optional<ApiError> ReadInfer(const InferMessage& message, Answering answering,
                                  const RequestLimits& limits, InferRequest& out);

// Whether the version is served: "" and "1" are; the error names `field`.
std::optional<ApiError> CheckVersion(std::string_view version, std::string_view field);

// vLLM's keys, `sampling` as JSON members; null is unset, numbers and objects may be given as
// strings. An unknown key is refused.
std::optional<ApiError> ReadSamplingKeys(const json::Object& sampling, const RequestLimits& limits,
                                         InferRequest& out);

// The checks that need all tensors, keys and parameters: ranges, limits, one choice, one
// constraint.
std::optional<ApiError> SettleInfer(const RequestLimits& limits, InferRequest& out);

}  // namespace quire::oip
