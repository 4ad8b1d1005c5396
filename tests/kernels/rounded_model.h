// The class w8a8 as its rule says it, one number at a time, from the blocks of the normal form:
// what its kernels must equal bit for bit. And rules that are wrong in one thing, which tests must
// notice.
#pragma once

#include <span>
#include <vector>

#include "tests/kernels/test_weights.h"

namespace quire::kernels::test {

enum class RoundedFault {
  kNone,
  kScaleBeforeWeight,  // (S · scale) · weight scale
  kInverse,            // x · (1 / scale)
  kOf127,              // scale = max / 127
  kUpwards,            // halves away from zero
  kOneChain,           // e4m3: no chunks
  kSeparateRounding,   // scales of chunks: no fma
};

class RoundedModel {
 public:
  explicit RoundedModel(const Weight& weight) : weight_(weight) {}

  // A row of x times all rows of the weight.
  std::vector<float> Run(std::span<const float> x, RoundedFault fault = RoundedFault::kNone) const;

 private:
  const Weight& weight_;
};

// The e4m3 nearest to v, the even one of two, found by comparing with all of them.
float NearestE4m3(float v);

}  // namespace quire::kernels::test
