// inference.GRPCInferenceService: the Open Inference Protocol in front of the pipeline.
//
// Owner of the service: the InferenceServer that it is added to. gRPC's threads read requests and
// post to the event loop, where all else happens.
#pragma once

#include "router/grpc/inference_server.h"

namespace quire::oip {

// `services` outlive the server, which has not been started.
void AddOpenInference(GrpcServices& services, InferenceServer& server);

}  // namespace quire::oip
