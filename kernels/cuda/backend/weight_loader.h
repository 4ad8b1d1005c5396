// Brings weights to the device: repacked by several threads into one of two slabs of pinned memory,
// while the other is on its way.
//
// Owned by DeviceWeights::Load, on its thread; the threads that it starts for a slab end with it.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>

#include "kernels/backend.h"
#include "kernels/cuda/backend/device_weights.h"
#include "kernels/cuda/runtime/runtime.h"

namespace quire::kernels::cuda {

inline constexpr size_t kSlabBytes = 8 << 20;
inline constexpr unsigned kMaxPackThreads = 8;

class WeightLoader {
 public:
  WeightLoader(const ProgramOptions& options, runtime::Runtime& runtime)
      : options_(options), runtime_(runtime) {}
  ~WeightLoader();
  WeightLoader(const WeightLoader&) = delete;
  WeightLoader& operator=(const WeightLoader&) = delete;

  runtime::Error Begin();
  // Returns when all is on the device.
  runtime::Error End();

  // `to` is the part's memory on the device. A weight whose rows are larger than a slab is an
  // error.
  runtime::Error LoadMatrix(const Weight& weight, const DeviceWeight& shape, DeviceWeightPart& part,
                            std::byte* to);
  runtime::Error LoadVector(const Weight& weight, const DeviceWeight& shape, std::byte* to);

 private:
  struct Slab {
    void* host = nullptr;
    runtime::EventId event{};
    bool sent = false;
  };
  // Fills rows [first, first + count) of a part at `out`.
  using Packer = std::function<void(int64_t first, int64_t count, std::byte* out)>;

  // The slab's memory, once its previous content is on the device.
  runtime::Error Take(std::byte** out);
  runtime::Error Send(std::byte* to, size_t bytes);
  // Packs `count` rows from `first` on, in pieces of whole units of rows, one for each thread.
  void PackApart(int64_t first, int64_t count, int64_t unit, size_t unit_bytes, const Packer& pack);
  void Release(const Weight& weight, const DeviceWeightPart& part, int64_t first, int64_t count);

  const ProgramOptions& options_;
  runtime::Runtime& runtime_;
  runtime::StreamId stream_{};
  std::array<Slab, 2> slabs_;
  size_t next_ = 0;
};

}  // namespace quire::kernels::cuda
