// Device memory of one program: allocated while it loads, freed when it is destroyed.
//
// Owned by a CudaProgram; its thread. Nothing is freed before that, so that free device memory is
// constant once a program is loaded.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "kernels/cuda/runtime/runtime.h"

namespace quire::kernels::cuda {

class DeviceHeap {
 public:
  explicit DeviceHeap(runtime::Runtime& runtime) : runtime_(runtime) {}
  ~DeviceHeap() {
    for (void* at : device_) runtime_.Free(at);
    for (void* at : mapped_) runtime_.FreeMapped(at);
  }
  DeviceHeap(const DeviceHeap&) = delete;
  DeviceHeap& operator=(const DeviceHeap&) = delete;

  // Null for no elements, and after an error, which sticks.
  template <class T>
  T* New(size_t count) {
    void* at = nullptr;
    if (count == 0 || !error_.empty()) return nullptr;
    error_ = runtime_.Allocate(count * sizeof(T), &at);
    if (!error_.empty()) return nullptr;
    device_.push_back(at);
    bytes_ += static_cast<int64_t>(count * sizeof(T));
    return static_cast<T*>(at);
  }

  template <class T>
  struct Mapped {
    T* host = nullptr;
    T* device = nullptr;
  };
  template <class T>
  Mapped<T> NewMapped(size_t count) {
    void* host = nullptr;
    void* device = nullptr;
    if (count == 0 || !error_.empty()) return {};
    error_ = runtime_.AllocateMapped(count * sizeof(T), &host, &device);
    if (!error_.empty()) return {};
    mapped_.push_back(host);
    return {static_cast<T*>(host), static_cast<T*>(device)};
  }

  int64_t bytes() const { return bytes_; }  // of device memory
  const runtime::Error& error() const { return error_; }

 private:
  runtime::Runtime& runtime_;
  std::vector<void*> device_;
  std::vector<void*> mapped_;
  int64_t bytes_ = 0;
  runtime::Error error_;
};

}  // namespace quire::kernels::cuda
