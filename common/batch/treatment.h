// What the status of a request's answer means for a batch.
#pragma once

#include <cstdint>

namespace quire::batch {

// A server's own failure may be the request's fault, or of the moment.
inline constexpr int kMaxServerFailures = 3;

enum class Treatment : uint8_t {
  kResult,        // it is the request's result
  kAgain,         // the server is away or busy: the request is sent again
  kServerFailure  // the same, kMaxServerFailures times at most
};

constexpr Treatment TreatmentOf(int status) {
  switch (status) {
    case 408:
    case 429:
    case 499:  // the server was given up before it answered
    case 502:
    case 503:
    case 504:
      return Treatment::kAgain;
    default:
      return status >= 500 ? Treatment::kServerFailure : Treatment::kResult;
  }
}

}  // namespace quire::batch
