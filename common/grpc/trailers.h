// The headers and trailers of a call, made so that its client takes them: a status in few words,
// and of all together no more than the client says it reads.
//
// Pure.
#pragma once

#include <cstddef>

#include "common/grpc/call_head.h"

namespace quire {

// Of a grpc-message, as it is on the wire: proxies and clients commonly bound all headers at 8 KiB.
inline constexpr size_t kMaxStatusMessageBytes = 2048;

// Appends grpc-status and what else a status becomes.
void AppendStatus(const absl::Status& status, GrpcMetadata& out);
// As HTTP/2 counts a header list.
size_t HeaderListBytes(const GrpcMetadata& fields);
// Shortens trailers with this status to `most` bytes: details go first, then words, then metadata,
// and what was added last goes first. False: not even the status fits.
bool FitTrailers(const absl::Status& status, size_t most, GrpcMetadata& trailers);

}  // namespace quire
