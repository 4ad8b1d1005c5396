// One Attach of gRPC as a FrameStream: its messages are the frames, bytes as they are.
//
// Event loop only.
//  1. A router that sends too fast waits in its own flow control: frames are handed on one by one,
//     and none before the stream is started.
//  2. A router that does not read is held back at kWritablePendingBytes, and given up after
//     kWriteBlockedTurns.
#pragma once

#include <functional>
#include <memory>

#include "common/grpc/methods.h"

namespace quire {

inline constexpr size_t kWritablePendingBytes = 1u << 20;  // above it Write says to hold back

// `accept` gets the stream, in a turn of its own.
GrpcMethod AttachMethod(std::function<void(std::unique_ptr<FrameStream>)> accept);

}  // namespace quire
