// Sums and gathers between the ranks of a program: over NCCL on the device where it was opened,
// otherwise over the host memory in which they meet.
//
// Owned by a CudaProgram; its thread. Invariants:
// 1. The bits of a sum are the same either way: float32, in the order of ranks.
// 2. The first failure of a collective is final for its group: every later call fails with it.
// 3. With NCCL every wait for the device has a deadline, which is the host communicator's;
//    collectives are queued on the stream and may be captured. Over the host each waits for its
//    peers inside the call.
#pragma once

#include <cstdint>
#include <functional>
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
  int64_t most_elements = 0;      // of a sum
  std::byte* gathered = nullptr;  // device memory for gathered values, of all ranks
  // Releases all graphs with collectives in them; called before the group is aborted.
  std::function<void()> before_abort;
};

class RankExchange {
 public:
  RankExchange(const RankExchangeOptions& options, runtime::Runtime& runtime, DeviceHeap& heap);

  // Device bytes that the exchange over NCCL needs beside the library's own.
  static int64_t DeviceBytes(int ranks, int64_t most_bytes) { return ranks * most_bytes; }

  // Whether collectives are queued, so that steps with them may be captured and launched ahead.
  bool queues() const { return nccl_ != nullptr; }

  // buffer[i] = Σ over ranks of buffer[i], in device memory, ordered with the stream.
  runtime::Error Sum(float* buffer, size_t count);
  // gathered = every rank's `bytes` of device memory, one rank after the other, ordered with the
  // stream.
  runtime::Error Gather(const std::byte* mine, size_t bytes);
  // Waits until `event` has happened, for at most this long; or for everything that is queued on
  // the stream.
  runtime::Error Await(runtime::EventId event, int64_t wait_micros);
  runtime::Error Finish();
  // The failure so far, here or at a peer, without a wait.
  runtime::Error Look();
  // Ends the group: waits on the device are released.
  void Abort();

  // Why there is no exchange; empty: there is one.
  const runtime::Error& error() const { return error_; }

 private:
  runtime::Error SumOnHost(float* buffer, size_t count);
  runtime::Error GatherOverHost(const std::byte* mine, size_t bytes);
  runtime::Error NcclError() const { return "a collective failed: " + nccl_->error(); }

  runtime::Runtime& runtime_;
  const RankExchangeOptions options_;
  runtime::Error error_;
  std::unique_ptr<nccl::NcclCommunicator> nccl_;
  runtime::EventId done_{};
  DeviceHeap::Mapped<float> staging_;  // over the host: [most_elements]
  float* sums_ = nullptr;              // where the host's communicator reads them
  std::vector<float> own_sums_;        // when the group has no memory left
  std::vector<std::byte> mine_;        // over the host: gathered, until the next one
  std::vector<std::byte> all_;
};

}  // namespace quire::kernels::cuda
