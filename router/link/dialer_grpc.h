// Dials workers over gRPC: the real Dialer behind links and text bundles.
//
// Owner: main. Dial and FetchTextBundle are called on the executor's thread, where all callbacks
// happen; gRPC's own threads only post to it.
//  1. Limits are explicit: frames of 1 MiB both ways, bundles of 128 MiB, 64 frames read ahead of
//     the executor, 4 MiB waiting to be written.
//  2. Every dial has a connection and a back-off of its own; when to dial again is the link's
//     decision, not gRPC's.
//  3. Streams are destroyed before the dialer; its destructor waits for gRPC to let go.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "common/pem.h"
#include "common/runtime/runtime.h"

namespace quire {

// What a router shows workers, and what it asks of them.
struct WorkerTls {
  MutualTlsPem pem;
  std::string
      name;  // a subject alternative name of the worker's certificate, wherever it is dialled
};
// What holds for the next dial; nullptr: in the clear. Called on the executor's thread.
using CurrentWorkerTls = std::function<const WorkerTls*()>;

// `executor` outlives the dialer.
std::unique_ptr<Dialer> MakeGrpcDialer(Executor& executor, CurrentWorkerTls tls = nullptr);

}  // namespace quire
