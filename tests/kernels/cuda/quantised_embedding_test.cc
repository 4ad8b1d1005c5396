// Look-ups in tables that stay quantised: the bits of the expanded table, at every token.
#include <algorithm>

#include "kernels/cuda/ops/embedding/embedding.h"
#include "tests/kernels/cuda/device_bed.h"
#include "tests/kernels/test_weights.h"

namespace quire::kernels::cuda::test {
namespace {

std::vector<DType> TypesOfTables() {
  std::vector<DType> types;
  for (const DType type : kernels::test::kAllTypes) {
    if (BlockElements(type) > 1 && CanLookUp(QuantisedLayout(type, 256).form)) {
      types.push_back(type);
    }
  }
  return types;
}

// A table both ways on one device.
class TableBed {
 public:
  TableBed(DType type, int rows, int width, uint64_t seed, bool half = false)
      : bed_(seed), width_(width), half_(half) {
    kernels::test::WeightStore store(static_cast<uint32_t>(seed));
    const WeightSource source = store.Random(type, rows, width, 1.0f);
    QuantisedWeight layout = QuantisedLayout(type, width);
    std::vector<std::byte> packed(QuantisedBytes(layout, rows));
    PackQuantised(source, 0, packed.data());
    layout.data = reinterpret_cast<const unsigned char*>(bed_.Put(packed));
    std::vector<uint16_t> expanded;
    for (int64_t row = 0; row < rows; ++row) {
      for (int64_t col = 0; col < width; ++col) {
        const auto value = static_cast<float>(kernels::test::ElementOf(source, row, col));
        expanded.push_back(Narrow(value, half));
      }
    }
    quantised_ = layout;
    table_ = bed_.Put(expanded);
    rows_ = rows;
  }

  DeviceBed& bed() { return bed_; }
  std::vector<float> Run(const std::vector<int32_t>& tokens, bool quantised, float scale) {
    EmbeddingParams params;
    if (quantised) params.quantised = quantised_;
    if (!quantised) params.table = table_;
    params.tokens = bed_.Put(tokens);
    const size_t count = tokens.size() * static_cast<size_t>(width_);
    params.out = bed_.New<float>(count);
    params.rows = static_cast<int>(tokens.size());
    params.width = width_;
    params.first_token = 100;
    params.vocabulary = rows_;
    params.scale = scale;
    params.half = half_;
    bed_.Check(LaunchEmbedding(bed_.runtime(), bed_.stream(), params));
    return bed_.Get(params.out, count);
  }

 private:
  DeviceBed bed_;
  int width_;
  bool half_;
  int rows_ = 0;
  QuantisedWeight quantised_;
  const uint16_t* table_ = nullptr;
};

TEST(CudaQuantisedEmbedding, HasTheBitsOfTheExpandedTable) {
  uint64_t seed = 1;
  for (const DType type : TypesOfTables()) {
    SCOPED_TRACE(DTypeName(type));
    // Blocks of 32 end within a tile of 64.
    const int width = BlockElements(type) > 32 ? 512 : 160;
    std::vector<int32_t> tokens = {99, 137, -1, 1 << 30};  // of another rank's part
    for (int row = 0; row < 37; ++row) tokens.push_back(100 + row * 7 % 37);
    for (const bool half : {false, true}) {
      TableBed bed(type, 37, width, ++seed, half);
      for (const float scale : {1.0f, 25.298f}) {
        ASSERT_EQ(bed.Run(tokens, true, scale), bed.Run(tokens, false, scale));
      }
    }
  }
}

// A block of threads takes 2,048 elements of a row.
TEST(CudaQuantisedEmbedding, WideRowsTakeSeveralBlocks) {
  TableBed bed(DType::kQ6_K, 17, 4352, 20);
  const std::vector<int32_t> tokens = {116, 100, 107};
  ASSERT_EQ(bed.Run(tokens, true, 1.0f), bed.Run(tokens, false, 1.0f));
}

TEST(CudaQuantisedEmbedding, KeepsItsBudget) {
  // Sectors of 32 bytes that hold something of a row's 64 elements: two rows lie together, and the
  // scales of sixteen.
  struct Shape {
    DType type;
    const char* kernel;
    double sectors;  // of a tile
    double supers;   // of four
  };
  for (const Shape& s : {Shape{DType::kQ4_0, "embedding_q4", 2 + 2, 0},
                         Shape{DType::kQ4_K, "embedding_q4", 2 + 2, 2},
                         Shape{DType::kQ5_1, "embedding_q5", 2 + 1 + 4, 0},
                         Shape{DType::kQ6_K, "embedding_q6", 2 + 2 + 2, 1},
                         Shape{DType::kQ8_0, "embedding_q8", 4 + 2, 0},
                         Shape{DType::kIQ4_XS, "embedding_t4", 2 + 1, 1},
                         Shape{DType::kQ2_K, "embedding_t4", 2 + 4, 2}}) {
    SCOPED_TRACE(DTypeName(s.type));
    const int width = 2048;
    const int tokens = 16;
    TableBed bed(s.type, 40, width, 30);
    std::vector<int32_t> ids;
    for (int i = 0; i < tokens; ++i) ids.push_back(100 + (i * 5) % 40);
    bed.Run(ids, true, 1.0f);
    const double tiles = width / 64.0;
    const double bytes = tokens * (tiles * 32 * s.sectors + tiles / 4 * 32 * s.supers +
                                   4.0 * width + 4 /* the token's id */);
    ExpectWithinBudget(bed.bed().runtime(), s.kernel, bytes, 0);
  }
}

TEST(CudaQuantisedEmbedding, WhatItCannotServeIsRefused) {
  DeviceBed bed;
  EmbeddingParams params;
  params.rows = 1;
  params.width = 128;
  params.quantised = QuantisedLayout(DType::kQ4_K, 256);
  params.quantised.data = bed.New<unsigned char>(4096);
  EXPECT_NE(LaunchEmbedding(bed.runtime(), bed.stream(), params), "");
  params.quantised = QuantisedLayout(DType::kG4, 128);
  params.quantised.data = bed.New<unsigned char>(4096);
  EXPECT_NE(LaunchEmbedding(bed.runtime(), bed.stream(), params), "");
}

}  // namespace
}  // namespace quire::kernels::cuda::test
