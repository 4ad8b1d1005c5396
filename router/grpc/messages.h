// Conversion between the protobuf messages of quire.v1.Inference and the plain values of the
// pipeline.
//
// Any thread; pure. Messages are hostile: ranges and counts are checked, and an error names the
// field as the proto spells it.
#pragma once

#include <optional>
#include <span>

#include "common/grpc/call_head.h"
#include "common/status.h"
#include "quire/v1/inference.pb.h"
#include "router/core/api.h"
#include "router/core/request_limits.h"
#include "router/pipeline/pipeline.h"

namespace quire {

// nullopt: `out` holds the request (all but request id and deadline, which the call knows).
std::optional<ApiError> FromProto(const v1::GenerateRequest& in, GenerateRequest& out,
                                  const RequestLimits& limits = {});
std::optional<ApiError> FromProto(const v1::ChatRequest& in, GenerateRequest& out,
                                  const RequestLimits& limits = {});
std::optional<ApiError> FromProto(const v1::TokenizeRequest& in, Prompt& out,
                                  const RequestLimits& limits = {});

void ToProto(const Started& in, const std::string& request_id, v1::Started& out);
void ToProto(std::span<const TokenLogprob> logprobs, uint64_t first_position, v1::PromptPart& out);
// Appends to what `out` already holds of the same choice.
void AppendToProto(const Delta& in, v1::Delta& out);
// Whether the parts of both stay in the order in which they were written.
bool MayFollow(const Delta& in, const v1::Delta& before);
void ToProto(const ChoiceEnd& in, v1::Done& out);
void ToProto(const Usage& in, v1::Usage& out);
void ToProto(const ModelEntry& in, v1::ModelInfo& out);

// Abseil's codes are gRPC's. The message begins with the field's name where there is one.
absl::Status ToStatus(const ApiError& error);
// The same, with the error's retry time.
GrpcEnd EndOf(const ApiError& error);

}  // namespace quire
