// Collectives between GPU ranks over NCCL, in the order of a stream, without a call that can block.
//
// Owned by its rank; called from the rank's one thread, except Abort and aborted. What Communicator
// promises applies, with these meanings on a device:
//  1. Buffers are device memory. A collective has been queued when its call returns, and is done
//     when the stream has come so far: Await waits for that, and detects failures meanwhile.
//  2. A sum is an all_gather and one kernel that adds in the order of ranks (LaunchRankSum): NCCL's
//     own reductions choose their order by size and topology.
//  3. No call of NCCL blocks (blocking = 0): work under way is polled until the deadline. A
//     deadline, an error of NCCL and Abort all end in ncclCommAbort, which releases everything that
//     the device still waits in; later calls fail at once. An abort of the host's group also aborts
//     this group. Abort sets a flag that the rank's thread finds at its next check: ncclCommAbort
//     returns only when no graph holds a collective any more, and graphs belong to that thread.
//  4. Ranks that call different collectives or sizes reach their deadline: NCCL cannot detect that.
//  5. Collectives may be captured; Await may not be called within a capture.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "kernels/communicator.h"
#include "kernels/cuda/nccl/nccl_library.h"
#include "kernels/cuda/runtime/runtime.h"

namespace quire::kernels::cuda::nccl {

inline constexpr size_t kScratchBytesPerRank = 16;  // a vector of its sum, or its barrier's word

struct CommunicatorOptions {
  const Library* library = nullptr;  // outlives the communicator
  // The same ranks, in host memory; outlives the communicator. Carries NCCL's id at the start, and
  // is aborted by the first failure here. Every wait checks whether the group has ended, so that no
  // rank waits for its own deadline to learn what a peer knows.
  Communicator* host = nullptr;
  runtime::Runtime* runtime = nullptr;  // outlives the communicator
  runtime::StreamId stream{};
  // Of device memory, at least kScratchBytesPerRank for each rank; larger sums go in pieces.
  size_t scratch_bytes = size_t{32} << 20;
  int64_t init_micros = 120'000'000;  // until the group is complete
  // Releases every graph, and capture under way, with a collective of this group in it.
  std::function<void()> before_abort;
};

class NcclCommunicator final : public Communicator {
 public:
  // Meets the peers; null and one line when they do not come together. Every rank calls it. A rank
  // that lacks something reports it before NCCL is started.
  static std::unique_ptr<NcclCommunicator> Create(const CommunicatorOptions& options,
                                                  std::string& error);
  ~NcclCommunicator() override;

  int rank() const override { return rank_; }
  int size() const override { return size_; }
  std::byte* Allocate(size_t bytes) override;
  CommFailure AllReduceSum(std::span<float> values) override;
  CommFailure AllGather(std::span<const std::byte> mine, std::span<std::byte> all) override;
  CommFailure Broadcast(std::span<std::byte> data, int root) override;
  // Queued like the others.
  CommFailure Barrier() override;
  void SetDeadline(int64_t wait_micros) override { wait_micros_ = wait_micros; }
  int64_t wait_micros() const override { return wait_micros_; }
  void Abort() override { abort_asked_.store(true); }
  CommFailure failure() const override { return failure_; }
  bool aborted() const override { return AbortAsked() || failure_ != CommFailure::kNone; }

  // Waits until `event`, recorded behind collectives, has happened: within the deadline, or it
  // fails.
  CommFailure Await(runtime::EventId event);
  // The failure so far, without a wait.
  CommFailure Look() {
    return failure_ == CommFailure::kNone ? PollAsync("a collective") : failure_;
  }
  // What failed, in one line; empty while nothing has.
  const std::string& error() const { return error_; }

 private:
  explicit NcclCommunicator(const CommunicatorOptions& options);
  std::string Join(const CommunicatorOptions& options);
  std::string ReserveScratch();
  // Exchanges the inputs of each rank: rank 0's id, and whether all have what they need.
  std::string Greet(const CommunicatorOptions& options, UniqueId& id);
  bool AbortAsked() const { return abort_asked_.load() || host_.aborted(); }
  // Handles the result of a call: OK, under way until the deadline, or a failure.
  CommFailure Settle(const char* what, Result result);
  CommFailure PollAsync(const char* what);
  CommFailure Fail(CommFailure failure, std::string why);
  void EndGroup();
  CommFailure TakeError(runtime::Error error);

  const Library& library_;
  const Functions& nccl_;
  runtime::Runtime& runtime_;
  Communicator& host_;
  const runtime::StreamId stream_;
  const int rank_;
  const int size_;
  int64_t wait_micros_ = 2'000'000;
  size_t scratch_bytes_;
  float* scratch_ = nullptr;
  std::vector<void*> allocated_;
  CommFailure failure_ = CommFailure::kNone;
  std::string error_;
  std::atomic<bool> abort_asked_ = false;
  const std::function<void()> before_abort_;
  Comm* comm_ = nullptr;  // null once it has ended
};

}  // namespace quire::kernels::cuda::nccl
