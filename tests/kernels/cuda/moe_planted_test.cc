// A sum of experts whose order the batch decides is found; its companions are in chain/.
#include <vector>

#include "kernels/cuda/ops/moe/combine.h"
#include "tests/kernels/cuda/device_bed.h"
#include "tests/kernels/cuda/planted/moe_planted.h"

namespace quire::kernels::cuda::test {
namespace {

// Token 3 alone, and as the last of four.
bool CompanyChangesTheSum(const runtime::KernelHandle* planted) {
  const int chosen = 4;
  const int width = 512;
  const auto rows = RandomFloats(size_t{4} * chosen * width, 11);
  const auto weights = RandomFloats(size_t{4} * chosen, 12);
  std::vector<std::vector<float>> sums;
  for (const int tokens : {1, 4}) {
    DeviceBed bed(tokens);
    CombineParams params;
    params.rows = bed.Put(rows) + (4 - tokens) * chosen * width;
    params.weights = bed.Put(weights) + (4 - tokens) * chosen;
    params.out = bed.New<float>(size_t{4} * width);
    params.tokens = tokens;
    params.chosen = chosen;
    params.width = width;
    bed.Check(
        planted == nullptr
            ? LaunchCombine(bed.runtime(), bed.stream(), params)
            : bed.runtime().Launch(bed.stream(), *planted,
                                   runtime::ShapeOf(static_cast<uint32_t>(tokens), 1, 0, params)));
    sums.push_back(bed.Get(params.out + (tokens - 1) * width, width));
  }
  return sums[0] != sums[1];
}

TEST(CudaPlantedMixtures, ExpertOrderByBatchIsFound) {
  EXPECT_FALSE(CompanyChangesTheSum(nullptr));
  const runtime::KernelHandle planted = CombineInOrderOfBatch();
  EXPECT_TRUE(CompanyChangesTheSum(&planted));
}

}  // namespace
}  // namespace quire::kernels::cuda::test
