// An emulated device as op tests use it: vectors in, vectors out, no violation unseen.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <string>
#include <vector>

#include "kernels/cuda/device/numbers.h"
#include "kernels/cuda/emulate/emulated_runtime.h"

namespace quire::kernels::cuda::test {

class DeviceBed {
 public:
  explicit DeviceBed(uint64_t seed = 1) : runtime_(seed) { Check(runtime_.CreateStream(&stream_)); }
  ~DeviceBed() {
    for (void* at : allocated_) runtime_.Free(at);
  }
  DeviceBed(const DeviceBed&) = delete;
  DeviceBed& operator=(const DeviceBed&) = delete;

  emulate::EmulatedRuntime& runtime() { return runtime_; }
  runtime::StreamId stream() const { return stream_; }
  void Check(const runtime::Error& error) { EXPECT_EQ(error, ""); }

  // Device memory full of NaN.
  template <class T>
  T* New(size_t count) {
    void* at = nullptr;
    Check(runtime_.Allocate(count * sizeof(T), &at));
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
  emulate::EmulatedRuntime runtime_;
  runtime::StreamId stream_{};
  std::vector<void*> allocated_;
};

// Numbers of a normal-like spread from a seed, rounded to bfloat16.
std::vector<uint16_t> RandomBf16(size_t count, uint64_t seed, float scale = 1.0f);
inline float Widen(uint16_t bits) { return device::ToFloat(device::Bf16{bits}); }

// Half a unit in the last place of a bfloat16 of this magnitude: what rounding the exact value may
// cost.
inline double Bf16Rounding(double exact) { return std::abs(exact) / 256.0 + 1e-38; }

// The counters of `kernel` since the last ClearCounters held to its row in budget.csv.
void ExpectWithinBudget(const emulate::EmulatedRuntime& runtime, const std::string& kernel,
                        double bytes_once, double useful_tiles);

}  // namespace quire::kernels::cuda::test
