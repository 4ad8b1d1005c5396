// One packed weight and everything to multiply with it, for tests of products. Outputs start as
// NaN.
#pragma once

#include <algorithm>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

#include "kernels/cpu/int8_form.h"
#include "kernels/cpu/kernel_table.h"
#include "kernels/cpu/program_needs.h"
#include "tests/kernels/test_weights.h"

namespace quire::kernels::test {

struct Product {
  cpu::PackedMatrix matrix;
  LinearOp::Activation activation = LinearOp::Activation::kNone;
  std::vector<float> bias;
  float scale = 1.0f;
  float softcap = 0.0f;

  int64_t Width() const { return matrix.gated ? matrix.rows / 2 : matrix.rows; }

  // y = [rows, width], with one call per unit so that units are seen to be independent.
  std::vector<float> Run(const cpu::KernelTable& kernels, const std::vector<float>& x,
                         int rows) const {
    constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();
    std::vector<float> out(rows * Width(), kNaN);
    std::vector<float> scratch(cpu::LinearScratchFloats(rows), kNaN);
    std::vector<float> tiles(std::max(rows, 16) * cpu::BufferStride(static_cast<int>(matrix.k)),
                             kNaN);
    std::vector<int32_t> words(std::max(rows, 16) * cpu::Int8RowWords(matrix.k), -1);
    cpu::LinearJob job;
    job.weight = &matrix;
    job.x = x.data();
    job.x_stride = matrix.k;
    job.rows = rows;
    job.bias = bias.empty() ? nullptr : bias.data();
    job.activation = activation;
    job.scale = scale;
    job.softcap = softcap;
    job.out = out.data();
    job.out_stride = Width();
    std::vector<cpu::RoundedInput> rounded;
    std::vector<std::vector<float>> rounded_memory;
    if (kernels.round != nullptr && matrix.roundings.any()) {
      for (const cpu::RoundingOfInput& input : matrix.roundings.inputs) {
        const int64_t codes = cpu::RoundedCodes(input, matrix.k, rows);
        rounded_memory.emplace_back(codes + cpu::RoundedScales(input, matrix.k, rows), kNaN);
        float* const at = rounded_memory.back().data();
        rounded.push_back({reinterpret_cast<int32_t*>(at), at, at + codes});
        const int count = cpu::RowTiles(rows, kernels.rounded_tile_rows).count;
        for (int i = count - 1; i >= 0; --i) kernels.round(job, input, {i, i + 1}, rounded.back());
      }
      job.x_rounded = rounded.data();
    } else if (kernels.quantise != nullptr && matrix.takes_int8) {
      const int count = Tiles(rows, kernels.int8_direct_rows, kernels.int8_tile_rows);
      const int pieces = count * static_cast<int>((matrix.k + cpu::kChunk - 1) / cpu::kChunk);
      for (int i = pieces - 1; i >= 0; --i) kernels.quantise(job, i, i + 1, words.data());
      job.x_int8 = words.data();
    } else if (rows > 1 || kernels.direct_rows == 0) {
      const int count = Tiles(rows, kernels.direct_rows, kernels.tile_rows);
      for (int i = 0; i < count; ++i) kernels.pack_tiles(job, i, i + 1, tiles.data());
      job.x_tiles = tiles.data();
    }
    for (int unit = cpu::LinearUnits(matrix) - 1; unit >= 0; --unit) {
      kernels.linear(job, unit, unit + 1, scratch.data());
    }
    return out;
  }

  static int Tiles(int rows, int direct_rows, int tile_rows) {
    return rows <= direct_rows ? 1 : cpu::RowTiles(rows, tile_rows).count;
  }
};

inline cpu::PackedMatrix Pack(const Weight& weight, bool gated) {
  cpu::PackedMatrix matrix = cpu::PlanMatrix(weight, gated);
  cpu::AllocateMatrix(matrix);
  cpu::PackPanels(matrix, weight, 0, matrix.PanelCount());
  return matrix;
}

// 72 rows in two parts of one type, which leave partial panels.
inline Weight TwoParts(WeightStore& store, DType type, int64_t columns) {
  Weight weight;
  weight.cols = columns;
  weight.parts = {store.Random(type, 40, columns, 0.1f), store.Random(type, 32, columns, 0.1f)};
  weight.rows = 72;
  return weight;
}

inline std::vector<float> RandomRows(int64_t count, std::mt19937& random) {
  std::normal_distribution<float> normal(0.0f, 1.0f);
  std::vector<float> x(count);
  for (float& v : x) v = normal(random);
  return x;
}

inline bool SameBits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), 4 * a.size()) == 0;
}

}  // namespace quire::kernels::test
