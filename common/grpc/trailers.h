// The headers and trailers of a call, made so that its client accepts them: a short status, and a
// total size that is at most what the client says that it reads.
//
// Pure.
#pragma once

#include <cstddef>

#include "common/grpc/call_head.h"
#include "common/http2/session.h"

namespace quire {

// The size of a grpc-message on the wire: proxies and clients commonly limit all headers to 8 KiB.
inline constexpr size_t kMaxStatusMessageBytes = 2048;

// Appends grpc-status and the other fields of a status.
void AppendStatus(const absl::Status& status, GrpcMetadata& out);
// The size as HTTP/2 counts a header list.
size_t HeaderListBytes(http2::Headers fields);
size_t HeaderListBytes(const GrpcMetadata& fields);
// Shortens trailers with this status to `most` bytes: drops details first, then words, then
// metadata, the field that was added last first. False: not even the status fits.
bool FitTrailers(const absl::Status& status, size_t most, GrpcMetadata& trailers);

}  // namespace quire
