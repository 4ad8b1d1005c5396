// Collectives between GPU ranks over NCCL, in the order of a stream, without a call that can block.
//
// Owned by its rank; called from the rank's one thread, except Abort and aborted. What Communicator
// promises holds, with these meanings on a device:
//  1. Buffers are device memory. A collective has been queued when its call returns, and is done
//     when the stream has come so far: Await says when, and finds out what failed meanwhile.
//  2. A sum is an all_gather and one kernel that adds in the order of ranks (LaunchRankSum): NCCL's
//     own reductions choose their order by size and topology.
//  3. NCCL is never waited for inside one of its calls (blocking = 0): what is under way is asked
//     for until the deadline. A deadline, an error of NCCL's and Abort all end in ncclCommAbort,
//     which frees whatever the device still waits in; later calls fail at once. An abort of the
//     host's group is one of this group. Abort is a word that the rank's thread finds with its next
//     look: ncclCommAbort returns only when no graph holds a collective any more, and graphs are
//     that thread's.
//  4. Ranks that call different collectives or sizes meet their deadline: NCCL cannot tell.
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
  // The same ranks, in host memory; outlives the communicator. Carries NCCL's id at the start, is
  // asked in every wait whether the group has ended, and is aborted by the first failure here: none
  // waits for its own deadline to learn what a peer knows.
  Communicator* host = nullptr;
  runtime::Runtime* runtime = nullptr;  // outlives the communicator
  runtime::StreamId stream{};
  // Of device memory, at least kScratchBytesPerRank for each rank; larger sums go in pieces.
  size_t scratch_bytes = size_t{32} << 20;
  int64_t init_micros = 120'000'000;  // until the group stands
  // Gives back every graph, and capture under way, with a collective of this group in it.
  std::function<void()> before_abort;
};

class NcclCommunicator final : public Communicator {
 public:
  // Meets the peers; null and one line when they do not come together. Every rank calls it. What a
  // rank lacks it tells before NCCL is begun.
  static std::unique_ptr<NcclCommunicator> Create(const CommunicatorOptions& options,
                                                  std::string& error);
  ~NcclCommunicator() override;

  int rank() const override { return rank_; }
  int size() const override { return size_; }
  std::byte* Allocate(size_t bytes) override;
  CommFailure AllReduceSum(std::span<float> values) override;
  CommFailure AllGather(std::span<const std::byte> mine, std::span<std::byte> all) override;
  CommFailure Broadcast(std::span<std::byte> data, int root) override;
  // Queued as the others are.
  CommFailure Barrier() override;
  void SetDeadline(int64_t wait_micros) override { wait_micros_ = wait_micros; }
  int64_t wait_micros() const override { return wait_micros_; }
  void Abort() override { abort_asked_.store(true); }
  CommFailure failure() const override { return failure_; }
  bool aborted() const override { return AbortAsked() || failure_ != CommFailure::kNone; }

  // Until `event`, recorded behind collectives, has happened: within the deadline, or not at all.
  CommFailure Await(runtime::EventId event);
  // What has failed so far, without a wait.
  CommFailure Look() {
    return failure_ == CommFailure::kNone ? PollAsync("a collective") : failure_;
  }
  // What failed, in one line; empty while nothing has.
  const std::string& error() const { return error_; }

 private:
  explicit NcclCommunicator(const CommunicatorOptions& options);
  std::string Join(const CommunicatorOptions& options);
  std::string ReserveScratch();
  // Exchanges what each rank has come with: rank 0's id, and whether all have what they need.
  std::string Greet(const CommunicatorOptions& options, UniqueId& id);
  bool AbortAsked() const { return abort_asked_.load() || host_.aborted(); }
  // Takes what a call returned: OK, under way until the deadline, or a failure.
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
