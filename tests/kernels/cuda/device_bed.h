// A device as op tests use it: vectors in, vectors out, no violation unseen. Emulated by
// device_bed.cc; on_device/device_bed_cuda.cc takes its place where the same tests run on a GPU.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "kernels/cuda/device/half.h"
#include "kernels/cuda/device/numbers.h"
#include "kernels/cuda/emulate/emulator.h"
#include "kernels/cuda/emulate/random.h"
#include "kernels/cuda/runtime/runtime.h"
#include "tests/kernels/cuda/forwarding_runtime.h"

namespace quire::kernels::cuda::test {

// The device's runtime, with what only an emulated one can count.
class BedRuntime final : public ForwardingRuntime {
 public:
  explicit BedRuntime(uint64_t seed);

  // Whether it counts: a GPU does not.
  bool counts() const;
  const std::map<std::string, emulate::Counters>& counters() const;
  void ClearCounters();
  // Less shared memory for a block than the device has; where it counts.
  void LimitShared(uint32_t bytes);
  // How far a launch and a library's call move the device's clock; a GPU's moves by itself.
  void SetTimes(double launch_seconds, double call_seconds);
};

class DeviceBed {
 public:
  explicit DeviceBed(uint64_t seed = 1) : runtime_(seed) { Check(runtime_.CreateStream(&stream_)); }
  ~DeviceBed() {
    for (void* at : allocated_) runtime_.Free(at);
  }
  DeviceBed(const DeviceBed&) = delete;
  DeviceBed& operator=(const DeviceBed&) = delete;

  BedRuntime& runtime() { return runtime_; }
  runtime::StreamId stream() const { return stream_; }
  void Check(const runtime::Error& error) { EXPECT_EQ(error, ""); }

  // Device memory full of NaN.
  template <class T>
  T* New(size_t count) {
    void* at = nullptr;
    Check(runtime_.Allocate(count * sizeof(T), &at));
    if (!runtime_.counts()) {  // an emulated device's is so by itself
      Check(runtime_.Fill(stream_, at, 0xff, count * sizeof(T)));
      Check(runtime_.Synchronize(stream_));
    }
    allocated_.push_back(at);
    return static_cast<T*>(at);
  }
  template <class T>
  T* Put(const std::vector<T>& host) {
    T* at = New<T>(host.size());
    Check(runtime_.Copy(stream_, at, host.data(), host.size() * sizeof(T)));
    Check(runtime_.Synchronize(stream_));
    return at;
  }
  template <class T>
  std::vector<T> Get(const T* at, size_t count) {
    std::vector<T> host(count);
    Check(runtime_.Copy(stream_, host.data(), at, count * sizeof(T)));
    Check(runtime_.Synchronize(stream_));
    return host;
  }

 private:
  BedRuntime runtime_;
  runtime::StreamId stream_{};
  std::vector<void*> allocated_;
};

// Numbers of a normal-like spread from a seed.
inline std::vector<float> RandomFloats(size_t count, uint64_t seed, float scale = 1.0f) {
  emulate::Random random(seed);
  std::vector<float> out(count);
  for (float& x : out) {
    float sum = -6.0f;
    const uint64_t bits = random.Next();
    for (int i = 0; i < 12; ++i) sum += static_cast<float>(bits >> (5 * i) & 31u) / 31.0f;
    x = sum * scale;
  }
  return out;
}

// The same, rounded to bfloat16.
inline std::vector<uint16_t> RandomBf16(size_t count, uint64_t seed, float scale = 1.0f) {
  std::vector<uint16_t> out;
  for (const float x : RandomFloats(count, seed, scale)) out.push_back(device::Bf16Bits(x));
  return out;
}

inline float Widen(uint16_t bits) { return device::ToFloat(device::Bf16{bits}); }

// What is multiplied: bfloat16, or float16 of at most ±65,504.
inline uint16_t Narrow(float x, bool half) {
  return half ? static_cast<uint16_t>(device::PackFiniteF16(x, 0.0f)) : device::Bf16Bits(x);
}
inline float Widen(uint16_t bits, bool half) {
  return half ? device::ToFloat(device::F16{bits}) : Widen(bits);
}
inline std::vector<uint16_t> RandomNarrow(size_t count, uint64_t seed, bool half) {
  std::vector<uint16_t> out;
  for (const float x : RandomFloats(count, seed)) out.push_back(Narrow(x, half));
  return out;
}

// Half a unit in the last place of a bfloat16 of this magnitude: what rounding the exact value may
// cost.
inline double Bf16Rounding(double exact) { return std::abs(exact) / 256.0 + 1e-38; }

// The counters of `kernel` since the last ClearCounters held to its row in budget.csv, where they
// are counted.
void ExpectWithinBudget(const BedRuntime& runtime, const std::string& kernel, double bytes_once,
                        double useful_tiles);

}  // namespace quire::kernels::cuda::test
