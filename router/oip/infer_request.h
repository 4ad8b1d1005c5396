// One inference request of the Open Inference Protocol, from tensors and parameters to what the
// pipeline is asked.
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
  std::vector<std::string_view> outputs;  // asked for by name; empty: what the inputs say
};

// How its answer may come.
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
  GenerateRequest generate;  // all but request id, tenant and what headers say
  std::string id;
  std::string model;
  WantedOutputs wanted;
  bool stream = false;       // a response for each step
  bool empty_final = false;  // the last word is a response of its own, without outputs
  bool raw_outputs = true;   // outputs as raw contents, else as typed ones
  // Over REST an output says for itself whether it comes as bytes behind the JSON.
  std::map<std::string, bool, std::less<>> raw_by_name;
};

inline constexpr std::string_view kVersion = "1";  // of every model
inline constexpr size_t kMaxIdBytes = 1024;

// nullopt: `out` holds the request.
std::optional<ApiError> ReadInfer(const InferMessage& message, Answering answering,
                                  const RequestLimits& limits, InferRequest& out);

// "" and "1" are; the error names `field`.
std::optional<ApiError> CheckVersion(std::string_view version, std::string_view field);

// vLLM's keys, `sampling` as JSON members; null is unset, numbers may be given as strings. A key
// that nobody knows is refused.
std::optional<ApiError> ReadSamplingKeys(const json::Object& sampling, GenerateRequest& out);

// What remains to be settled once tensors, keys and parameters were read: ranges, limits, one
// choice.
std::optional<ApiError> SettleInfer(const RequestLimits& limits, InferRequest& out);

}  // namespace quire::oip
