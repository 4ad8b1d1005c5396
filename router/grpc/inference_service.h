// quire.v1.Inference in front of the pipeline.
//
// Owner of what it adds: the server's methods.
#pragma once

#include "router/grpc/methods.h"

namespace quire {

void AddInference(GrpcMethods& methods);

}  // namespace quire
