#include "kernels/cuda/backend/weight_loader.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "kernels/cuda/backend/expand.h"
#include "kernels/expand.h"
#include "kernels/grouped_blocks.h"

namespace quire::kernels::cuda {
namespace {

constexpr int64_t kFragmentRows = 16;

// Calls `take(source, row)` with the slices of its sources that make up rows [first, first + count)
// of a part; each slice begins at row `row` of the part.
template <class Take>
void ForSlices(const Weight& weight, const DeviceWeightPart& part, int64_t first, int64_t count,
               const Take& take) {
  int64_t begin = 0;  // of the source, in the part
  for (size_t i = 0; i < part.source_count; ++i) {
    const WeightSource& source = weight.parts[part.first_source + i];
    const int64_t from = std::max(first, begin);
    const int64_t to = std::min(first + count, begin + source.rows);
    if (from < to) {
      WeightSource slice = source;
      slice.data = source.Row(from - begin);
      slice.rows = to - from;
      slice.row_stride = source.RowStride();
      take(slice, from);
    }
    begin += source.rows;
  }
}

bool HasZeros(const WeightSource& source) {
  for (int64_t row = 0; row < source.rows; ++row) {
    if (grouped::Zero(source.Row(row)) != 0) return true;  // every block of a row has the same
  }
  return false;
}

}  // namespace

WeightLoader::~WeightLoader() {
  if (slabs_[0].host != nullptr) runtime_.Synchronize(stream_);
  for (const Slab& slab : slabs_) {
    if (slab.host != nullptr) runtime_.FreeMapped(slab.host);
  }
}

runtime::Error WeightLoader::Begin() {
  runtime::Error error = runtime_.CreateStream(&stream_);
  for (Slab& slab : slabs_) {
    void* device = nullptr;
    if (error.empty()) error = runtime_.CreateEvent(&slab.event);
    if (error.empty()) error = runtime_.AllocateMapped(kSlabBytes, &slab.host, &device);
  }
  return error;
}

runtime::Error WeightLoader::End() { return runtime_.Synchronize(stream_); }

runtime::Error WeightLoader::Take(std::byte** out) {
  Slab& slab = slabs_[next_];
  *out = static_cast<std::byte*>(slab.host);
  return slab.sent ? runtime_.Synchronize(slab.event) : runtime::Error();
}

runtime::Error WeightLoader::Send(std::byte* to, size_t bytes) {
  Slab& slab = slabs_[next_];
  next_ = 1 - next_;
  slab.sent = true;
  runtime::Error error = runtime_.Copy(stream_, to, slab.host, bytes);
  return error.empty() ? runtime_.Record(slab.event, stream_) : error;
}

void WeightLoader::PackApart(int64_t first, int64_t count, int64_t unit, size_t unit_bytes,
                             const Packer& pack) {
  auto* out = static_cast<std::byte*>(slabs_[next_].host);
  const int64_t units = (count + unit - 1) / unit;
  const int64_t wanted = std::clamp(std::thread::hardware_concurrency(), 1u, kMaxPackThreads);
  const int64_t each = (units + wanted - 1) / wanted;
  const auto piece = [&](int64_t begin) {
    const int64_t rows = std::min(each * unit, count - begin * unit);
    pack(first + begin * unit, rows, out + static_cast<size_t>(begin) * unit_bytes);
  };
  std::vector<std::thread> threads;
  for (int64_t begin = each; begin < units; begin += each) threads.emplace_back(piece, begin);
  piece(0);
  for (std::thread& thread : threads) thread.join();
}

runtime::Error WeightLoader::LoadMatrix(const Weight& weight, const DeviceWeight& shape,
                                        DeviceWeightPart& part, std::byte* to) {
  const bool quantised = part.quantised.bits > 0;
  const int64_t unit = quantised ? kFragmentRows : 1;
  const auto cols = static_cast<size_t>(shape.cols);
  const size_t unit_bytes =
      quantised ? static_cast<size_t>(part.quantised.fragment_bytes) : 2 * cols;
  if (unit_bytes > kSlabBytes) return "rows of " + std::to_string(cols) + " weights";
  std::atomic<bool> zeros = false;
  std::atomic<bool> narrow = part.quantised.form == QuantForm::kGrouped;
  const Packer pack = [&](int64_t first, int64_t count, std::byte* out) {
    const auto units = static_cast<size_t>((count + unit - 1) / unit);
    std::memset(out, 0, units * unit_bytes);
    ForSlices(weight, part, first, count, [&](const WeightSource& slice, int64_t row) {
      if (narrow && !HasNarrowSteps(slice, shape.half)) narrow = false;
      if (IsByCodes(part.quantised.form)) {
        if (slice.type == DType::kG8 && HasZeros(slice)) zeros = true;
        return PackByCodes(slice, part.quantised, row - first, out);
      }
      if (quantised) return PackQuantised(slice, row - first, out);
      auto* rows = reinterpret_cast<uint16_t*>(out) + static_cast<size_t>(row - first) * cols;
      const auto own = static_cast<size_t>(slice.cols);  // the rest of a row is zeros
      if (own == cols) {
        return ExpandRows(slice, 0, shape.half, {rows, static_cast<size_t>(slice.rows) * cols});
      }
      for (int64_t i = 0; i < slice.rows; ++i, rows += cols) {
        ExpandRows(slice, i, shape.half, {rows, own});
      }
    });
  };
  const int64_t slab_rows = unit * static_cast<int64_t>(kSlabBytes / unit_bytes);
  for (int64_t first = 0; first < part.rows; first += slab_rows) {
    const int64_t count = std::min(slab_rows, part.rows - first);
    std::byte* slab = nullptr;
    runtime::Error error = Take(&slab);
    if (!error.empty()) return error;
    PackApart(first, count, unit, unit_bytes, pack);
    if (zeros) {
      return "its codes have zeros, which products of int8 codes on a GPU do not take; use "
             "--activation-dtype auto";
    }
    const auto units = static_cast<size_t>((count + unit - 1) / unit);
    error = Send(to + static_cast<size_t>(first / unit) * unit_bytes, units * unit_bytes);
    if (!error.empty()) return error;
    Release(weight, part, first, count);
  }
  part.quantised.narrow_steps = narrow;
  return {};
}

// As many rows at a time as a slab has room for: a router's are long.
runtime::Error WeightLoader::LoadVector(const Weight& weight, const DeviceWeight& shape,
                                        std::byte* to) {
  constexpr size_t kRoom = kSlabBytes / sizeof(float) - 8;  // less the zeros that fill up the last
  const auto cols = static_cast<size_t>(shape.cols);
  size_t sent = 0;
  size_t used = 0;
  std::byte* slab = nullptr;
  runtime::Error error = Take(&slab);
  for (const WeightSource& source : weight.parts) {
    const auto width = static_cast<size_t>(source.cols);
    if (width > kRoom) return "a vector of " + std::to_string(width) + " weights";
    for (int64_t row = 0; row < source.rows && error.empty(); ++row) {
      if (used + width > kRoom) {
        error = Send(to + sizeof(float) * sent, sizeof(float) * used);
        sent += used;
        used = 0;
        if (error.empty()) error = Take(&slab);
        if (!error.empty()) break;
      }
      ExpandRow(source, row, {reinterpret_cast<float*>(slab) + used, width});
      used += width;
    }
  }
  if (!error.empty()) return error;
  std::fill_n(reinterpret_cast<float*>(slab) + used, cols - sent - used, 0.0f);
  return Send(to + sizeof(float) * sent, sizeof(float) * (cols - sent));
}

void WeightLoader::Release(const Weight& weight, const DeviceWeightPart& part, int64_t first,
                           int64_t count) {
  if (!options_.release_source) return;
  // The gaps between the rows of a slice belong to other ranks: they read them from disk again.
  ForSlices(weight, part, first, count, [&](const WeightSource& slice, int64_t) {
    options_.release_source(slice.data, (slice.rows - 1) * slice.RowStride() + slice.RowBytes());
  });
}

}  // namespace quire::kernels::cuda
