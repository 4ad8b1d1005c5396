// grpc.reflection: what is served, and the descriptors of its messages, in versions v1 and v1alpha,
// which say the same.
//
// Owner: the server; event loop only, once methods no longer change.
//  1. What is asked is at most kMaxReflectionQuestionBytes: answers repeat it.
#pragma once

#include "common/grpc/methods.h"

namespace quire {

inline constexpr size_t kMaxReflectionQuestionBytes = 4096;

// `methods` are those that are told of, its own among them.
void AddReflection(GrpcMethods& methods);

}  // namespace quire
