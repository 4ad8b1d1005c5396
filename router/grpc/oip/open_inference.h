// inference.GRPCInferenceService: the Open Inference Protocol in front of the pipeline.
//
// Owner of what it adds: the server's methods.
#pragma once

#include "router/grpc/methods.h"

namespace quire::oip {

void AddOpenInference(GrpcMethods& methods);

}  // namespace quire::oip
