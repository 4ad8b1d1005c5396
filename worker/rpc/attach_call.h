// One Attach of gRPC as a FrameStream: its messages are the frames, byte for byte.
//
// Event loop only.
//  1. A router that sends too fast waits in its own flow control: frames are passed on one by one,
//     and none before the stream is started.
//  2. A router that does not read is held back at kWritablePendingBytes, and given up after
//     kWriteBlockedTurns.
#pragma once

#include <functional>
#include <memory>

#include "common/grpc/methods.h"

namespace quire {

inline constexpr size_t kWritablePendingBytes =
    1u << 20;  // above it Write returns that its caller should pause

// `accept` gets the stream, in a separate turn of the loop.
GrpcMethod AttachMethod(std::function<void(std::unique_ptr<FrameStream>)> accept);

}  // namespace quire
