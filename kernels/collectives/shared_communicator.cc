#include "kernels/collectives/shared_communicator.h"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <cstring>

namespace quire::kernels {
namespace {

enum class Kind : uint64_t { kBarrier = 1, kSum, kSumInPlace, kSumInPlaceEnd, kGather, kBroadcast };

// Sizes are below 2^48 (kMaxArenaBytes is, and so is any span).
constexpr uint64_t CallWord(Kind kind, size_t bytes, int root = 0) {
  return static_cast<uint64_t>(kind) << 56 | static_cast<uint64_t>(root) << 48 |
         static_cast<uint64_t>(bytes);
}

// A caller's own bug: no sensible continuation exists.
void Require(bool holds) {
  if (!holds) std::abort();
}

// into[i] += from[i]. The inner loop's fixed length lets the compiler make vectors of it.
void AddTo(float* __restrict into, const float* __restrict from, size_t count) {
  constexpr size_t kAtOnce = 16;
  size_t i = 0;
  for (; i + kAtOnce <= count; i += kAtOnce) {
    for (size_t j = 0; j < kAtOnce; ++j) into[i + j] += from[i + j];
  }
  for (; i < count; ++i) into[i] += from[i];
}

}  // namespace

SharedCommunicator::SharedCommunicator(SharedGroup& group, int rank) : group_(group), rank_(rank) {
  Require(rank >= 0 && rank < group.size());
}

std::byte* SharedCommunicator::Allocate(size_t bytes) {
  constexpr size_t kAlign = 64;
  const size_t left = group_.arena_bytes() - allocated_;
  if (bytes > left) return nullptr;
  std::byte* memory = group_.Arena(rank_) + allocated_;
  allocated_ = std::min(group_.arena_bytes(), allocated_ + (bytes + kAlign - 1) / kAlign * kAlign);
  return memory;
}

CommFailure SharedCommunicator::Fail(CommFailure failure) {
  failure_ = failure;
  group_.Abort();
  return failure;
}

void SharedCommunicator::WakePeers() {
  for (int peer = 0; peer < size(); ++peer) {
    if (peer == rank_) continue;
    SharedGroup::RankState& state = group_.rank(peer);
    if (state.sleeping.load() == 0) continue;
    state.wake.fetch_add(1);
    FutexWakeAll(state.wake);
  }
}

// `next` is the first rank that is not known to have come.
bool SharedCommunicator::AllCame(int& next) const {
  while (next < size() && (next == rank_ || group_.rank(next).arrived.load() >= meeting_)) ++next;
  return next == size();
}

CommFailure SharedCommunicator::Wait() {
  int next = 0;
  if (AllCame(next)) return CommFailure::kNone;
  const int64_t start = FutexNowMicros();
  do {
    for (int i = 0; i < 16; ++i) {
      if (AllCame(next)) return CommFailure::kNone;
      SpinPause();
    }
  } while (FutexNowMicros() - start < kCommunicatorSpinMicros && !group_.aborted());
  // A peer that arrives either sees `sleeping` and raises `wake`, or arrived before it was set and
  // the check that follows sees it: all four accesses are in one order (seq_cst).
  SharedGroup::RankState& me = group_.rank(rank_);
  me.sleeping.store(1);
  CommFailure failure = CommFailure::kNone;
  while (true) {
    const uint32_t seen = me.wake.load();
    if (AllCame(next)) break;
    if (group_.aborted()) failure = CommFailure::kAborted;
    const int64_t left = wait_micros_ - (FutexNowMicros() - start);
    if (failure == CommFailure::kNone && left <= 0) failure = CommFailure::kDeadline;
    if (failure != CommFailure::kNone) break;
    FutexWait(me.wake, seen, left);
  }
  me.sleeping.store(0);
  return failure;
}

CommFailure SharedCommunicator::Meet(const Call& call) {
  if (failure_ != CommFailure::kNone) return failure_;
  if (group_.aborted()) return Fail(CommFailure::kAborted);
  const int parity = NextParity();
  ++meeting_;
  SharedGroup::RankState& me = group_.rank(rank_);
  me.call[parity].store(call.word, std::memory_order_relaxed);
  me.place[parity].store(call.place, std::memory_order_relaxed);
  me.arrived.store(meeting_);
  WakePeers();
  const CommFailure waited = Wait();
  if (waited != CommFailure::kNone) return Fail(waited);
  for (int peer = 0; peer < size(); ++peer) {
    const SharedGroup::RankState& state = group_.rank(peer);
    if (state.call[parity].load(std::memory_order_relaxed) != call.word ||
        state.place[parity].load(std::memory_order_relaxed) != call.place) {
      return Fail(CommFailure::kMismatch);
    }
  }
  return CommFailure::kNone;
}

CommFailure SharedCommunicator::Barrier() { return Meet({CallWord(Kind::kBarrier, 0)}); }

bool SharedCommunicator::InArena(std::span<const float> values, uint64_t& place) const {
  const auto begin = reinterpret_cast<uintptr_t>(group_.Arena(rank_));
  const auto at = reinterpret_cast<uintptr_t>(values.data());
  if (at < begin || at - begin >= allocated_) return false;
  place = at - begin;
  return values.size_bytes() <= allocated_ - place;
}

CommFailure SharedCommunicator::AllReduceSum(std::span<float> values) {
  const size_t bytes = values.size_bytes();
  uint64_t place = 0;
  if (bytes > kSlotBytes && InArena(values, place)) {
    return SumInPlace(values, {CallWord(Kind::kSumInPlace, bytes), place});
  }
  constexpr size_t kSlotFloats = kSlotBytes / sizeof(float);
  for (size_t first = 0; first < values.size(); first += kSlotFloats) {
    const std::span<float> part =
        values.subspan(first, std::min(kSlotFloats, values.size() - first));
    const int parity = NextParity();
    std::memcpy(group_.Slot(parity, rank_), part.data(), part.size_bytes());
    const CommFailure met = Meet({CallWord(Kind::kSum, bytes), first});
    if (met != CommFailure::kNone) return met;
    std::memcpy(part.data(), group_.Slot(parity, 0), part.size_bytes());
    for (int peer = 1; peer < size(); ++peer) {
      AddTo(part.data(), reinterpret_cast<const float*>(group_.Slot(parity, peer)), part.size());
    }
  }
  return failure_;
}

// Each rank sums its share of the elements and writes it to all: no one else reads or writes that
// share between the two meetings.
CommFailure SharedCommunicator::SumInPlace(std::span<float> values, const Call& call) {
  const CommFailure met = Meet(call);
  if (met != CommFailure::kNone) return met;
  constexpr size_t kLine = 16;  // floats that ranks do not share
  const size_t lines = (values.size() + kLine - 1) / kLine;
  const size_t ranks = static_cast<size_t>(size());
  const size_t begin = lines * static_cast<size_t>(rank_) / ranks * kLine;
  const size_t end =
      std::min(values.size(), lines * (static_cast<size_t>(rank_) + 1) / ranks * kLine);
  std::array<float, 2048> sum;
  for (size_t first = begin; first < end; first += sum.size()) {
    const size_t count = std::min(sum.size(), end - first);
    const auto part = [&](int peer) {
      return reinterpret_cast<float*>(group_.Arena(peer) + call.place) + first;
    };
    std::memcpy(sum.data(), part(0), count * sizeof(float));
    for (int peer = 1; peer < size(); ++peer) AddTo(sum.data(), part(peer), count);
    for (int peer = 0; peer < size(); ++peer) {
      std::memcpy(part(peer), sum.data(), count * sizeof(float));
    }
  }
  return Meet({CallWord(Kind::kSumInPlaceEnd, values.size_bytes()), call.place});
}

CommFailure SharedCommunicator::AllGather(std::span<const std::byte> mine,
                                          std::span<std::byte> all) {
  Require(all.size() == mine.size() * static_cast<size_t>(size()));
  for (size_t first = 0; first < mine.size(); first += kSlotBytes) {
    const std::span<const std::byte> part =
        mine.subspan(first, std::min(kSlotBytes, mine.size() - first));
    const int parity = NextParity();
    std::memcpy(group_.Slot(parity, rank_), part.data(), part.size());
    const CommFailure met = Meet({CallWord(Kind::kGather, mine.size()), first});
    if (met != CommFailure::kNone) return met;
    for (int peer = 0; peer < size(); ++peer) {
      std::memcpy(all.data() + static_cast<size_t>(peer) * mine.size() + first,
                  group_.Slot(parity, peer), part.size());
    }
  }
  return failure_;
}

CommFailure SharedCommunicator::Broadcast(std::span<std::byte> data, int root) {
  Require(root >= 0 && root < size());
  for (size_t first = 0; first < data.size(); first += kSlotBytes) {
    const std::span<std::byte> part =
        data.subspan(first, std::min(kSlotBytes, data.size() - first));
    const int parity = NextParity();
    if (rank_ == root) std::memcpy(group_.Slot(parity, rank_), part.data(), part.size());
    const CommFailure met = Meet({CallWord(Kind::kBroadcast, data.size(), root), first});
    if (met != CommFailure::kNone) return met;
    if (rank_ != root) std::memcpy(part.data(), group_.Slot(parity, root), part.size());
  }
  return failure_;
}

}  // namespace quire::kernels
