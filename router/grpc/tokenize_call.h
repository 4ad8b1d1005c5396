// Inference.Tokenize: the tokens of a text or of a chat over gRPC.
#pragma once

#include "common/grpc/methods.h"
#include "router/grpc/services.h"

namespace quire {

// Work for a client that has left stops. An answer above GrpcEdgeLimits::background_write_bytes is
// written on a background thread.
GrpcMethod TokenizeMethod(GrpcServices& services);

}  // namespace quire
