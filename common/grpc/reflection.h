// grpc.reflection: what is served, and the descriptors of its messages, in versions v1 and v1alpha,
// which say the same.
//
// Owner: the server; event loop only, once methods no longer change.
#pragma once

#include "common/grpc/methods.h"

namespace quire {

// `methods` are those that are told of, its own among them.
void AddReflection(GrpcMethods& methods);

}  // namespace quire
