// One rank's collectives over a SharedGroup.
//
// Every collective is a number of meetings: each rank publishes what it is about to do, passes its
// part, and waits until all have come as far. Two slots alternate, so that a rank that runs ahead
// cannot overwrite what a slower one still reads. A rank reaches meeting n + 2 only after it has
// met all others at n + 1, and they reach that only when they have read what they got at n.
#pragma once

#include <atomic>

#include "kernels/collectives/futex.h"
#include "kernels/collectives/shared_group.h"

namespace quire::kernels {

struct alignas(64) SharedGroup::Header {
  std::atomic<uint32_t> aborted;
};

// Words that only one rank writes, except for `wake`.
struct alignas(64) SharedGroup::RankState {
  std::atomic<uint64_t> arrived;   // meetings that it has reached
  std::atomic<uint64_t> call[2];   // the subject of the last two
  std::atomic<uint64_t> place[2];  // and where in the arena, if in the arena
  std::atomic<uint32_t> sleeping;
  std::atomic<uint32_t> wake;  // raised by a rank that has news for a sleeper
};

class SharedCommunicator final : public Communicator {
 public:
  SharedCommunicator(SharedGroup& group, int rank);

  int rank() const override { return rank_; }
  int size() const override { return group_.size(); }
  std::byte* Allocate(size_t bytes) override;
  CommFailure AllReduceSum(std::span<float> values) override;
  CommFailure AllGather(std::span<const std::byte> mine, std::span<std::byte> all) override;
  CommFailure Broadcast(std::span<std::byte> data, int root) override;
  CommFailure Barrier() override;
  void SetDeadline(int64_t wait_micros) override { wait_micros_ = wait_micros; }
  int64_t wait_micros() const override { return wait_micros_; }
  void Abort() override { group_.Abort(); }
  CommFailure failure() const override { return failure_; }
  bool aborted() const override { return group_.aborted(); }

 private:
  struct Call {
    uint64_t word = 0;
    uint64_t place = 0;
  };
  static constexpr int64_t kDefaultWaitMicros = 2'000'000;

  int NextParity() const { return static_cast<int>((meeting_ + 1) & 1); }
  CommFailure Meet(const Call& call);
  CommFailure Wait();
  bool AllCame(int& next) const;
  void WakePeers();
  CommFailure Fail(CommFailure failure);
  // Whether `values` are in this rank's arena; `place` is where.
  bool InArena(std::span<const float> values, uint64_t& place) const;
  CommFailure SumInPlace(std::span<float> values, const Call& call);

  SharedGroup& group_;
  const int rank_;
  size_t allocated_ = 0;
  uint64_t meeting_ = 0;  // that this rank has reached
  int64_t wait_micros_ = kDefaultWaitMicros;
  CommFailure failure_ = CommFailure::kNone;
};

}  // namespace quire::kernels
