// Fuzzes the guard of HTTP/2 connections: any bytes, in any split, give the same verdict, and it is
// final. The first byte is the split's step.
#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "common/grpc/http2_guard.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size < 2) return 0;
  const size_t step = 1 + data[0] % 32;
  std::string bytes;
  // Most inputs begin with the preface, or nothing behind it would be reached.
  if (data[1] % 4 != 0) bytes = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
  bytes.append(reinterpret_cast<const char*>(data) + 2, size - 2);
  quire::GuardLimits limits;
  for (quire::RateLimit* limit :
       {&limits.new_streams, &limits.resets, &limits.pings, &limits.settings,
        &limits.window_updates, &limits.continuations, &limits.empty_data, &limits.other_frames}) {
    *limit = {1, 3};
  }
  limits.max_header_block_bytes = 64;
  quire::Http2Guard whole(limits, 0);
  const char* verdict = whole.Inspect(bytes, 0);
  quire::Http2Guard split(limits, 0);
  const char* last = nullptr;
  for (size_t at = 0; at < bytes.size(); at += step) {
    const char* now = split.Inspect(std::string_view(bytes).substr(at, step), 0);
    if (last != nullptr && now != last) std::abort();
    last = now;
  }
  if ((verdict == nullptr) != (last == nullptr)) std::abort();
  if (verdict != nullptr && std::string_view(verdict) != last) std::abort();
  return 0;
}
