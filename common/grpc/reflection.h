// grpc.reflection: the served methods and the descriptors of their messages, in versions v1 and
// v1alpha, which are the same.
//
// Owner: the server; event loop only, once methods no longer change.
//  1. A request has at most kMaxReflectionQuestionBytes: answers repeat it.
#pragma once

#include "common/grpc/methods.h"

namespace quire {

inline constexpr size_t kMaxReflectionQuestionBytes = 4096;

// `methods` are those that are described, including its own.
void AddReflection(GrpcMethods& methods);

}  // namespace quire
