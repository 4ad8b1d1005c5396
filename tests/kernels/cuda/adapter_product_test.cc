// Products of adapters: the bits of each adapter's own product, in any company and tile; rows that
// no list names stay as they are.
#include <algorithm>
#include <numeric>

#include "kernels/cuda/ops/lora/adapter_product.h"
#include "tests/kernels/cuda/device_bed.h"

namespace quire::kernels::cuda::test {
namespace {

constexpr int kSlots = 5;

struct Shape {
  int n = 0;
  int k = 0;
  int slices = 1;
  bool half = false;
  bool out_float32 = true;  // and added
  int tile_rows = 8;
};

// Adapters of one shape in slots, and rows in front of and behind the columns that they read and
// write.
class Adapters {
 public:
  Adapters(const Shape& shape, int tokens)
      : shape_(shape),
        tokens_(tokens),
        x_stride_(shape.slices * shape.k + 16),
        out_stride_(shape.slices * shape.n + 8),
        slot_numbers_(static_cast<size_t>(shape.slices) * shape.n * shape.k + 128) {
    x_ = bed_.Put(RandomNarrow(static_cast<size_t>(tokens) * x_stride_, 1, shape.half));
    weights_ = bed_.Put(RandomNarrow(kSlots * slot_numbers_, 2, shape.half));
    there_ = RandomFloats(static_cast<size_t>(tokens) * out_stride_, 3);
    const size_t bytes = AdapterWorkspaceBytes(shape.n, shape.k) +
                         GemmWorkspaceBytes(1, shape.n, shape.k) + sizeof(float);
    workspace_ = bed_.New<float>(bytes / sizeof(float));
    counters_ = bed_.Put(std::vector<uint32_t>(kAdapterCounters, 0));
  }

  DeviceBed& bed() { return bed_; }
  size_t OutBytes() const {
    return static_cast<size_t>(tokens_) * out_stride_ * (shape_.out_float32 ? 4 : 2);
  }

  // `slot_of` by token; −1: it has none. All of out's rows.
  std::vector<std::byte> Grouped(const std::vector<int>& slot_of) {
    std::vector<int32_t> tokens;
    std::vector<ExpertTile> tiles;
    for (int slot = 0; slot < kSlots; ++slot) {
      for (int t = 0; t < tokens_; ++t) {
        if (slot_of[t] != slot) continue;
        if (tiles.empty() || tiles.back().expert != slot || tiles.back().rows == shape_.tile_rows) {
          tiles.push_back({slot, static_cast<int32_t>(tokens.size()), 0});
        }
        ++tiles.back().rows;
        tokens.push_back(t);
      }
    }
    AdapterProductParams params;
    params.product = Product(0, 0);
    params.product.out_stride = out_stride_;
    params.x_stride = x_stride_;
    params.slices = shape_.slices;
    params.slot_bytes = static_cast<int64_t>(2 * slot_numbers_);
    params.tile_count = bed_.Put(std::vector<int32_t>{static_cast<int32_t>(tiles.size())});
    const int most = static_cast<int>(tiles.size()) + 1;  // a block that finds no tile
    tiles.push_back({});
    params.tiles = bed_.Put(tiles);
    tokens.push_back(-1);
    params.tokens = bed_.Put(tokens);
    std::byte* out = Out();
    params.product.out = out;
    bed_.Check(LaunchAdapterProduct(bed_.runtime(), bed_.stream(), params, shape_.tile_rows, most));
    return bed_.Get(out, OutBytes());
  }

  // The same by a plain product for each token and slice.
  std::vector<std::byte> Plain(const std::vector<int>& slot_of) {
    std::byte* out = Out();
    for (int t = 0; t < tokens_; ++t) {
      for (int s = 0; s < shape_.slices && slot_of[t] >= 0; ++s) {
        GemmParams params = Product(slot_of[t], s);
        params.x += static_cast<size_t>(t) * x_stride_;
        params.m = 1;
        params.out = out + (static_cast<size_t>(t) * out_stride_ + s * shape_.n) *
                               (shape_.out_float32 ? 4 : 2);
        bed_.Check(LaunchGemm(bed_.runtime(), bed_.stream(), params));
      }
    }
    return bed_.Get(out, OutBytes());
  }

 private:
  GemmParams Product(int slot, int slice) const {
    GemmParams params;
    params.x = x_ + slice * shape_.k;
    params.weight =
        weights_ + slot * slot_numbers_ + static_cast<size_t>(slice) * shape_.n * shape_.k;
    params.n = shape_.n;
    params.k = shape_.k;
    params.half = shape_.half;
    params.out_float32 = params.accumulate = shape_.out_float32;
    params.scale = 0.75f;
    params.workspace = workspace_;
    params.counters = counters_;
    return params;
  }
  // What is there before.
  std::byte* Out() {
    std::vector<std::byte> bytes(OutBytes());
    memcpy(bytes.data(), there_.data(), bytes.size());
    return bed_.Put(bytes);
  }

  DeviceBed bed_;
  const Shape shape_;
  const int tokens_;
  const int x_stride_;
  const int out_stride_;
  const size_t slot_numbers_;
  const uint16_t* x_ = nullptr;
  const uint16_t* weights_ = nullptr;
  std::vector<float> there_;
  float* workspace_ = nullptr;
  uint32_t* counters_ = nullptr;
};

// Some tokens without an adapter, most of the others with one of them.
std::vector<int> SomeSlots(int tokens) {
  std::vector<int> slots;
  for (int t = 0; t < tokens; ++t) slots.push_back(t % 4 == 1 ? -1 : t % 3 == 0 ? t % kSlots : 2);
  return slots;
}

TEST(CudaAdapters, RowsHaveTheBitsOfTheirAdaptersOwnProduct) {
  // A of one module and of three, whose pieces of K meet or not; B of neighbours, of one and of
  // joined ones.
  for (Shape shape : {Shape{16, 1280, 1, false, false}, Shape{48, 2048, 1, true, false},
                      Shape{136, 1280, 1, false, false}, Shape{64, 8, 3}, Shape{200, 16, 2},
                      Shape{24, 256, 1}, Shape{136, 1280, 1, true}}) {
    for (const int tile_rows : {8, 32, 128}) {
      shape.tile_rows = tile_rows;
      SCOPED_TRACE(std::to_string(shape.n) + " " + std::to_string(shape.k) + " in tiles of " +
                   std::to_string(tile_rows));
      for (const int tokens : {1, 23}) {
        Adapters adapters(shape, tokens);
        const std::vector<int> slots = SomeSlots(tokens);
        ASSERT_EQ(adapters.Grouped(slots), adapters.Plain(slots)) << tokens;
      }
    }
  }
}

TEST(CudaAdapters, BitsOfARowAreTheSameAtEveryNumberOfRows) {
  Adapters all({40, 72}, 64);
  const auto wanted = all.Plain(SomeSlots(64));
  for (const int rows :
       {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 31, 32, 33, 64}) {
    for (const int tile_rows : {8, 32, 128}) {
      Adapters some({40, 72, 1, false, true, tile_rows}, rows);
      const auto got = some.Grouped(SomeSlots(rows));
      ASSERT_EQ(memcmp(got.data(), wanted.data(), got.size()), 0) << rows << " " << tile_rows;
    }
  }
}

TEST(CudaAdapters, KeepTheirBudget) {
  struct Kernel {
    int rows;
    const char* name;
  };
  for (const auto [rows, name] :
       {Kernel{8, "adapter_8"}, Kernel{32, "adapter_32"}, Kernel{128, "adapter_128"}}) {
    const Shape shape{128, 512, 1, false, false, rows};
    Adapters adapters(shape, 2 * rows);
    std::vector<int> slots(static_cast<size_t>(rows), 0);
    slots.resize(static_cast<size_t>(2 * rows), 3);
    adapters.Grouped(slots);
    const double both = 2.0 * rows;
    const double bytes = 2.0 * 2 * shape.n * shape.k + 2.0 * both * shape.k + 2.0 * both * shape.n;
    ExpectWithinBudget(adapters.bed().runtime(), name, bytes,
                       both * shape.n * shape.k / (16 * 8 * 16));
  }
}

TEST(CudaAdapters, ShapesThatTheyCannotTakeAreRefused) {
  DeviceBed bed;
  const auto refused = [&](AdapterProductParams params, int tile_rows, const std::string& why) {
    const auto error = LaunchAdapterProduct(bed.runtime(), bed.stream(), params, tile_rows, 1);
    EXPECT_NE(error.find(why), error.npos) << error;
  };
  AdapterProductParams params;
  params.product.n = params.product.k = params.product.out_stride = params.x_stride = 16;
  refused(params, 16, "tiles of 8, 32 or 128");
  AdapterProductParams odd = params;
  odd.product.k = 12;
  refused(odd, 8, "multiples of 8");
  AdapterProductParams narrow = params;
  narrow.slices = 2;
  refused(narrow, 8, "a multiple of 8 from 32 on");
  narrow.product.out_stride = 32;
  refused(narrow, 8, "rows 16 apart");
  narrow.x_stride = 32;
  refused(narrow, 8, "added to float32");
  AdapterProductParams deep = params;
  deep.product.k = 2048;
  deep.x_stride = 4096;
  deep.product.out_stride = 32;
  deep.product.out_float32 = true;
  deep.slices = 2;
  refused(deep, 8, "several pieces of K");
}

}  // namespace
}  // namespace quire::kernels::cuda::test
