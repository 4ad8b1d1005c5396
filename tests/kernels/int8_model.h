// The int8 class as its rule says it, one number at a time, from the blocks of a file: what its
// kernels must equal bit for bit. And rules that are wrong in one thing, which tests must notice.
#pragma once

#include <span>
#include <vector>

#include "tests/kernels/test_weights.h"

namespace quire::kernels::test {

enum class Fault {
  kNone,
  kBlocksBackwards,
  kScaleBeforeInput,  // (S · scale) · dx
  kSeparateRounding,  // no fma
  kChunkedChains,     // a chain for each 128 k
  kWiderInputBlocks,  // one dx for 128 k
  kMinimumFirst,      // formats with a minimum
  kScalesUnrounded,   // d · (scale · dx): formats with two levels of scales
};

// The faults that can show in a format.
std::vector<Fault> FaultsOf(DType type);

class Int8Model {
 public:
  explicit Int8Model(const Weight& weight) : weight_(weight) {}

  // A row of x times all rows of the weight.
  std::vector<float> Run(std::span<const float> x, Fault fault = Fault::kNone) const;

 private:
  const Weight& weight_;
};

// What x[k] is after it has been quantised, in float64.
double QuantisedValue(std::span<const float> x, int64_t k);

}  // namespace quire::kernels::test
