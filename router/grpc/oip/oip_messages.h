// Conversion between the Protobuf messages of the Open Inference Protocol and plain values.
//
// Any thread; pure. Messages are hostile: an error names the tensor or the parameter.
#pragma once

#include <optional>
#include <string_view>
#include <vector>

#include "inference/open_inference.pb.h"
#include "router/core/request_limits.h"
#include "router/oip/infer_request.h"

namespace quire::oip {

// nullopt: `out` holds the request.
std::optional<ApiError> FromProto(const inference::ModelInferRequest& in, Answering answering,
                                  const RequestLimits& limits, InferRequest& out);

// Name, version and id of the request, and the outputs of one response.
void ToProto(const InferRequest& request, const std::vector<OutputTensor>& outputs,
             inference::ModelInferResponse& out);

// The error for a response that is too large to send.
std::optional<ApiError> CheckSize(const google::protobuf::MessageLite& message, size_t limit);

// Whether more responses follow for the request.
void MarkFinal(bool final, inference::ModelInferResponse& out);
// A request's error, with its id and the other fields of the ApiError.
void ToProto(const InferRequest& request, const ApiError& error,
             inference::ModelStreamInferResponse& out);

void DescribeModel(std::string_view name, inference::ModelMetadataResponse& out);
void DescribeModel(std::string_view name, inference::ModelConfig& out);

}  // namespace quire::oip
