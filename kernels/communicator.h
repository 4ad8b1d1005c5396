// Communication of tensor-parallel ranks: collectives in one order on all ranks, summed in one
// order.
//
// Owned by its rank; called from the rank's one computing thread, except Abort. On a device with
// streams a collective is ordered as its stream is. Invariants:
// 1. All ranks call the same collectives with the same sizes in the same order. A rank that does
//    not is detected: its peers get kMismatch, or kDeadline when it calls nothing at all.
// 2. A sum is x₀ + x₁ + … in rank order, in float32, element by element: its bits depend on the
//    ranks' values alone, never on sizes, timing, threads or processes.
// 3. The first failure aborts the group for good: every later call of any rank fails at once, and
//    the result of the failed call is unspecified. A caller may continue to the end of its step and
//    check failure() once.
// 4. A wait spins at most kCommunicatorSpinMicros, then sleeps.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace quire::kernels {

inline constexpr int kMaxRanks = 64;
inline constexpr int64_t kCommunicatorSpinMicros = 20;

enum class CommFailure : uint8_t {
  kNone,
  kAborted,    // by a peer, or by the supervisor of the group
  kDeadline,   // a peer did not come in time: dead, stopped, or a collective was skipped
  kMismatch,   // a peer is at another collective, or at another size
  kTransport,  // the device, or the library that joins devices, has failed
};

constexpr const char* CommFailureName(CommFailure failure) {
  constexpr const char* kNames[] = {"none", "aborted", "deadline", "mismatch", "transport"};
  return kNames[static_cast<int>(failure)];
}

class Communicator {
 public:
  virtual ~Communicator() = default;

  virtual int rank() const = 0;
  virtual int size() const = 0;

  // Memory of this rank, 64-byte aligned, for as long as the communicator lives. Any memory may be
  // passed to a collective; a large sum over this memory is done in place, without a copy. Every
  // rank allocates the same sizes in the same order. Null when the group's memory is used up: the
  // caller then allocates its own.
  virtual std::byte* Allocate(size_t bytes) = 0;

  // values[i] = Σ over ranks of values[i]. The same `values.size()` on all ranks, and on all of
  // them either memory of the same Allocate at the same place, or memory of their own.
  virtual CommFailure AllReduceSum(std::span<float> values) = 0;
  // all = [size()][mine.size()], by rank. Requires: all.size() = size() · mine.size().
  virtual CommFailure AllGather(std::span<const std::byte> mine, std::span<std::byte> all) = 0;
  // data of `root` on all ranks.
  virtual CommFailure Broadcast(std::span<std::byte> data, int root) = 0;
  virtual CommFailure Barrier() = 0;

  // From now on no collective waits longer for its peers. Warm-up and tuning have longer ones than
  // steps.
  virtual void SetDeadline(int64_t wait_micros) = 0;
  virtual int64_t wait_micros() const = 0;  // as it was last set

  // Ends the group: all waiting calls wake up. Any thread; idempotent.
  virtual void Abort() = 0;
  // The first failure that this rank met.
  virtual CommFailure failure() const = 0;
  // Whether the group has ended, by a peer too: the next collective would fail.
  virtual bool aborted() const = 0;
};

// AllGather of one value of each rank; `all` has size() of them.
template <class T>
CommFailure AllGatherValues(Communicator& communicator, const T& mine, std::span<T> all) {
  return communicator.AllGather(std::as_bytes(std::span(&mine, 1)), std::as_writable_bytes(all));
}

}  // namespace quire::kernels
