// GetTextBundle: the text bundle of the one model, chunk by chunk, as fast as its router reads.
//
// Event loop only.
//  1. At most kMaxBundleCalls at once; one whose router reads nothing for kWriteBlockedTurns is
//     closed for another.
#pragma once

#include <memory>
#include <string>

#include "common/grpc/methods.h"

namespace quire {

inline constexpr int kMaxBundleCalls = 64;

GrpcMethod BundleMethod(const std::string& model_id, std::string bundle);

}  // namespace quire
