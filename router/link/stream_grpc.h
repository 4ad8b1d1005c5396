// A FrameStream over one gRPC bidirectional call whose messages are frames, bytes as they are.
//
// Two owners share the call's state: the stream (executor's thread) and gRPC's reactor (its own
// threads), which meet in a mutex that is never held across a call into gRPC or a callback.
//  1. Callbacks to the receiver happen on the executor, in order, and never after the stream is
//     destroyed.
//  2. gRPC reads at most kMaxReadAhead frames ahead of the executor.
//  3. A single write that takes longer than kWriteBlocked ends the call.
#pragma once

#include <grpcpp/channel.h>
#include <grpcpp/client_context.h>

#include <condition_variable>
#include <map>
#include <memory>
#include <string>

#include "absl/base/thread_annotations.h"
#include "common/runtime/runtime.h"
#include "common/sync.h"

namespace quire {

inline constexpr size_t kMaxReadAhead = 64;
inline constexpr size_t kMaxPendingWriteBytes = 4u << 20;
inline constexpr Micros kWriteBlocked = 5 * kMicrosPerSecond;

// The calls under way, so that whoever made them can wait until gRPC has let go of all. Any thread.
//
// A channel whose last reference goes away on one of gRPC's own threads makes that thread wait for
// itself and then use the queue that it has destroyed; contexts hold channels. So gRPC's threads
// only say that a call is done; what it held is let go on the executor, or by CancelAllAndWait,
// after which this object holds no context.
class GrpcCalls {
 public:
  void Add(std::shared_ptr<grpc::ClientContext> context);
  // gRPC's threads: gRPC will not touch the call again.
  void Done(const grpc::ClientContext* context);
  // The executor's thread.
  void Release(const std::shared_ptr<grpc::ClientContext>& context);
  // The executor's thread; no call is added afterwards.
  void CancelAllAndWait();

 private:
  using Contexts = std::map<const grpc::ClientContext*, std::shared_ptr<grpc::ClientContext>>;

  Mutex mutex_;
  std::condition_variable gone_;
  Contexts live_ ABSL_GUARDED_BY(mutex_);
  Contexts done_ ABSL_GUARDED_BY(mutex_);
};

absl::Status FromGrpcStatus(const grpc::Status& status);

// `executor` outlives the call.
std::unique_ptr<FrameStream> MakeGrpcStream(Executor& executor, std::shared_ptr<GrpcCalls> calls,
                                            std::shared_ptr<grpc::Channel> channel,
                                            const std::string& method);

}  // namespace quire
