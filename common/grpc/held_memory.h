// The memory of connections and calls beside the bytes that are counted one by one.
//
// Upper bounds, from counts of malloc (tests/router/grpc/held_memory_test.cc), including what
// nghttp2 keeps for them.
#pragma once

#include <cstddef>

#include "common/grpc/call_head.h"

namespace quire {

// The objects of a connection, nghttp2's session, and its two HPACK tables when they are full of
// the smallest entries.
inline constexpr size_t kConnectionBytes = 96u << 10;
// The objects of a call: our own, its handler's, nghttp2's, and a header block that waits to be
// sent.
inline constexpr size_t kCallBytes = 4u << 10;
inline constexpr size_t kMetadataFieldBytes = 128;  // beside its text: two strings

inline size_t HeldBytes(const GrpcMetadata& metadata) {
  size_t bytes = 0;
  for (const auto& [name, value] : metadata) {
    bytes += kMetadataFieldBytes + name.size() + value.size();
  }
  return bytes;
}

}  // namespace quire
