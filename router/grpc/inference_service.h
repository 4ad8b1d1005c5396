// quire.v1.Inference in front of the pipeline.
//
// Owner of what it adds: the server's methods, which the services outlive.
#pragma once

#include "common/grpc/methods.h"
#include "router/grpc/services.h"

namespace quire {

void AddInference(GrpcServices& services, GrpcMethods& methods);

}  // namespace quire
