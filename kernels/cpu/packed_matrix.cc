#include "kernels/cpu/packed_matrix.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <new>
#include <utility>

#include "kernels/cpu/formats.h"

namespace quire::kernels::cpu {
namespace {

constexpr int64_t RoundUp(int64_t value, int64_t unit) { return (value + unit - 1) / unit * unit; }

}  // namespace

PanelGeometry MakePanelGeometry(DType type, int64_t k) {
  PanelGeometry geometry;
  geometry.type = type;
  geometry.k = k;
  int64_t bytes = 0;
  switch (type) {
    case DType::kF32:
      bytes = k * 64;
      break;
    case DType::kF16:
      bytes = k * 32;
      break;
    case DType::kBF16:
      bytes = RoundUp(k, 2) * 32;
      break;
    default:
      bytes = k / kBlock * PackedBlockBytes(type) + k / BlockElements(type) * SuperBytes(type);
  }
  geometry.bytes = RoundUp(bytes, 64);
  return geometry;
}

Pages::Pages(int64_t bytes, bool huge_pages) : bytes_(bytes) {
  if (bytes == 0) return;
  void* memory = mmap(nullptr, static_cast<size_t>(bytes), PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) {
    // A program that explains failed allocations ends here.
    if (const std::new_handler handler = std::get_new_handler()) handler();
    std::fprintf(stderr, "out of memory: cannot reserve %lld bytes\n",
                 static_cast<long long>(bytes));
    std::abort();
  }
  if (huge_pages) madvise(memory, static_cast<size_t>(bytes), MADV_HUGEPAGE);
  data_ = static_cast<std::byte*>(memory);
}

Pages::~Pages() {
  if (data_ != nullptr) munmap(data_, static_cast<size_t>(bytes_));
}

Pages::Pages(Pages&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}

Pages& Pages::operator=(Pages&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(bytes_, other.bytes_);
  return *this;
}

PackedMatrix PlanMatrix(const Weight& weight, bool gated) {
  PackedMatrix matrix;
  matrix.rows = weight.rows;
  matrix.k = weight.cols;
  matrix.gated = gated;
  matrix.roundings = RoundingsOf(weight);
  if (const int32_t* order = weight.parts.empty() ? nullptr : weight.parts.front().order) {
    matrix.order.assign(order, order + weight.cols);
  }
  const int64_t half = gated ? weight.rows / 2 : -1;
  int64_t out_row = 0;
  for (size_t part = 0; part < weight.parts.size(); ++part) {
    const WeightSource& source = weight.parts[part];
    matrix.geometries.push_back(MakePanelGeometry(source.type, source.cols));
    matrix.takes_int8 = matrix.takes_int8 && TakesInt8(source.type);
    for (int64_t row = 0; row < source.rows;) {
      int64_t rows = std::min<int64_t>(kPanelRows, source.rows - row);
      if (out_row < half) rows = std::min(rows, half - out_row);
      Panel panel;
      panel.geometry = panel.part = static_cast<int32_t>(part);
      panel.part_row = row;
      panel.out_row = out_row;
      panel.rows = static_cast<int32_t>(rows);
      matrix.panels.push_back(panel);
      row += rows;
      out_row += rows;
    }
  }
  return matrix;
}

int64_t PackedBytes(const PackedMatrix& matrix) {
  int64_t bytes = 0;
  for (const Panel& panel : matrix.panels) bytes += matrix.geometries[panel.geometry].bytes;
  return bytes;
}

void AllocateMatrix(PackedMatrix& matrix) {
  matrix.memory = Pages(PackedBytes(matrix), true);
  int64_t offset = 0;
  for (Panel& panel : matrix.panels) {
    panel.data = matrix.memory.data() + offset;
    offset += matrix.geometries[panel.geometry].bytes;
  }
}

}  // namespace quire::kernels::cpu
