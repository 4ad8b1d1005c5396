// inference.GRPCInferenceService: the Open Inference Protocol in front of the pipeline.
//
// Owner of what it adds: the server's methods, which the services outlive.
#pragma once

#include "common/grpc/methods.h"
#include "router/grpc/services.h"

namespace quire::oip {

void AddOpenInference(GrpcServices& services, GrpcMethods& methods);

}  // namespace quire::oip
