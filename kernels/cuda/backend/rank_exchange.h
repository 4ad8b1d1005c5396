// What the ranks of a program sum: over NCCL on the device where it was opened, else over the host
// memory in which they meet.
//
// Owned by a CudaProgram; its thread. Invariants:
// 1. The bits of a sum are the same either way: bfloat16 values, summed in float32 in the order of
//    ranks, rounded once.
// 2. The first failure of a collective is its group's last word: every later call fails with it.
// 3. With NCCL nothing waits for the device without a deadline.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "kernels/communicator.h"
#include "kernels/cuda/backend/device_heap.h"
#include "kernels/cuda/nccl/nccl_communicator.h"
#include "kernels/cuda/runtime/runtime.h"

namespace quire::kernels::cuda {

struct RankExchangeOptions {
  Communicator* host = nullptr;            // outlives the exchange
  const nccl::Library* library = nullptr;  // null: over host memory; outlives the exchange
  runtime::StreamId stream{};
  int64_t most_elements = 0;  // of a sum
};

class RankExchange {
 public:
  RankExchange(const RankExchangeOptions& options, runtime::Runtime& runtime, DeviceHeap& heap);

  // Device bytes that the exchange over NCCL takes beside the library's own.
  static int64_t DeviceBytes(int ranks, int64_t most_elements) {
    return 2 * 2 * ranks * most_elements;
  }

  // buffer[i] = Σ over ranks of buffer[i] + delta[i] (null: none), bfloat16 in device memory,
  // ordered as the stream is. `count` is a multiple of 8.
  runtime::Error Sum(uint16_t* buffer, const uint16_t* delta, size_t count);
  // Until `event`, or all that the stream was given, has happened.
  runtime::Error Await(runtime::EventId event);
  runtime::Error Finish();

  // Why there is no exchange; empty: there is one.
  const runtime::Error& error() const { return error_; }

 private:
  runtime::Error SumOnDevice(uint16_t* buffer, const uint16_t* delta, size_t count);
  runtime::Error SumOnHost(uint16_t* buffer, const uint16_t* delta, size_t count);
  runtime::Error NcclError() const { return "a collective failed: " + nccl_->error(); }

  runtime::Runtime& runtime_;
  const RankExchangeOptions options_;
  runtime::Error error_;
  std::unique_ptr<nccl::NcclCommunicator> nccl_;
  runtime::EventId done_{};
  uint16_t* gathered_ = nullptr;          // [buffer, delta][ranks][most_elements]
  DeviceHeap::Mapped<uint16_t> staging_;  // over the host: [buffer, delta][most_elements]
  float* sums_ = nullptr;                 // where the host's communicator reads them
  std::vector<float> own_sums_;           // when the group has no memory left
};

}  // namespace quire::kernels::cuda
