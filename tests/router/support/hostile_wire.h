// What hostile clients of gRPC say again and again: headers by reference, calls that only wait.
#pragma once

#include <string>

#include "tests/router/support/wire_client.h"

namespace quire::wire {

inline constexpr char kReflection[] = "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo";
inline constexpr char kWatch[] = "/grpc.health.v1.Health/Watch";
inline constexpr char kCheck[] = "/grpc.health.v1.Health/Check";
inline constexpr char kTheReference = '\xbe';  // to the newest entry of the table
inline const std::string kNoWindow = Setting(4, 0);
inline const std::string kWideOpen =
    Setting(4, 1 << 30) + Frame(kWindowUpdate, 0, 0, Number(1 << 30, 4));

// A request that puts a value of 4,000 bytes into the table.
inline std::string Planting(uint32_t stream, const std::string& path, uint8_t flags) {
  const std::string field =
      std::string("\x40\x01") + "a" + Block({{"", std::string(3999, 'v')}}).substr(2);
  return Frame(kHeaders, kEndHeaders | flags, stream, Block(Post(path)) + field);
}

// A request whose headers name that value again and again.
inline std::string Referring(uint32_t stream, const std::string& path, size_t times,
                             uint8_t flags) {
  return Frame(kHeaders, kEndHeaders | flags, stream,
               Block(Post(path)) + std::string(times, kTheReference));
}

}  // namespace quire::wire
