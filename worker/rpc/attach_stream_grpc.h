// One Attach of gRPC as a FrameStream: the reactor lives on gRPC's threads, its state on the
// executor.
//
// The reactor only copies bytes and posts. It deletes itself, on the executor, after gRPC has said
// that nothing of it is in use.
//  1. One read and one write are under way at most. The next read starts when the receiver has
//  taken
//     the last frame: a router that sends too fast waits in its own flow control.
//  2. Finish is called once, when no write is under way; nothing is started after it.
//  3. A write that stays blocked for kWriteBlockedLimit closes the stream.
#pragma once

#include <grpcpp/grpcpp.h>

#include <functional>
#include <memory>

#include "common/runtime/runtime.h"

namespace quire {

inline constexpr size_t kWritablePendingBytes = 1u << 20;  // above it Write says to hold back
inline constexpr Micros kWriteBlockedLimit = 5 * kMicrosPerSecond;

using AttachReactorBase = grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>;

// On a gRPC thread. `accept` gets the stream on the executor.
AttachReactorBase* MakeAttachReactor(
    grpc::CallbackServerContext* context, Executor& executor,
    const std::function<void(std::unique_ptr<FrameStream>)>& accept);

}  // namespace quire
