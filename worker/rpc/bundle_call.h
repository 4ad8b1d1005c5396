// GetTextBundle: the text bundle of the one model, chunk by chunk, as its router takes them.
//
// Event loop only.
//  1. At most kMaxBundleCalls at once; one that takes nothing for kWriteBlockedTurns gives way.
#pragma once

#include <memory>
#include <string>

#include "common/grpc/methods.h"

namespace quire {

inline constexpr int kMaxBundleCalls = 64;

GrpcMethod BundleMethod(const std::string& model_id, std::string bundle);

}  // namespace quire
