// Dials workers by gRPC on the event loop: the real Dialer behind links and text bundles.
//
// Owner: main. Event loop only.
//  1. Limits are explicit: frames of 1 MiB both ways, bundles of 128 MiB, 4 MiB waiting to be
//     written, and the windows of a connection (worker_call_asio.h).
//  2. Every dial has its own connection; the link decides when to dial again.
//  3. Streams are destroyed before the dialer. Fetches that are under way then call nothing back.
#pragma once

#include <memory>

#include "common/runtime/asio_executor.h"
#include "common/runtime/runtime.h"
#include "router/link/worker_tls.h"

namespace quire {

// `executor` outlives the dialer.
std::unique_ptr<Dialer> MakeAsioDialer(AsioExecutor& executor, CurrentWorkerTls tls = nullptr);

}  // namespace quire
