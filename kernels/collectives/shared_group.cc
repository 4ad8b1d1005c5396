#include "kernels/collectives/shared_group.h"

#include <utility>

#include "kernels/collectives/shared_communicator.h"

namespace quire::kernels {
namespace {

constexpr size_t kAlign = 64;

constexpr size_t RoundUp(size_t bytes) { return (bytes + kAlign - 1) / kAlign * kAlign; }

bool Valid(const SharedGroupOptions& options, std::string& error) {
  if (options.size < 1 || options.size > kMaxRanks) {
    error = "a group of ranks has 1 to " + std::to_string(kMaxRanks) + ", not " +
            std::to_string(options.size);
    return false;
  }
  if (options.arena_bytes > kMaxArenaBytes) {
    error = "a rank's shared memory is beyond any machine's";
    return false;
  }
  return true;
}

}  // namespace

size_t SharedGroup::BytesNeeded(const SharedGroupOptions& options) {
  const size_t size = static_cast<size_t>(options.size);
  return sizeof(Header) +
         size * (sizeof(RankState) + 2 * kSlotBytes + RoundUp(options.arena_bytes));
}

std::unique_ptr<SharedGroup> SharedGroup::Create(const SharedGroupOptions& options,
                                                 std::string& error) {
  if (!Valid(options, error)) return nullptr;
  auto memory = SharedMemory::Create("quire-ranks", BytesNeeded(options), error);
  if (memory == nullptr) return nullptr;
  return std::unique_ptr<SharedGroup>(new SharedGroup(options, std::move(memory)));
}

std::unique_ptr<SharedGroup> SharedGroup::Open(const SharedGroupOptions& options, int fd,
                                               std::string& error) {
  if (!Valid(options, error)) return nullptr;
  auto memory = SharedMemory::Open(fd, BytesNeeded(options), error);
  if (memory == nullptr) return nullptr;
  return std::unique_ptr<SharedGroup>(new SharedGroup(options, std::move(memory)));
}

// The memory begins as zeros, which is what every word of it begins as.
SharedGroup::SharedGroup(const SharedGroupOptions& options, std::unique_ptr<SharedMemory> memory)
    : options_(options), memory_(std::move(memory)) {}

SharedGroup::~SharedGroup() = default;

SharedGroup::Header& SharedGroup::header() const {
  return *reinterpret_cast<Header*>(memory_->bytes().data());
}

SharedGroup::RankState& SharedGroup::rank(int rank) const {
  return reinterpret_cast<RankState*>(memory_->bytes().data() + sizeof(Header))[rank];
}

std::byte* SharedGroup::Slot(int parity, int rank) const {
  const size_t size = static_cast<size_t>(options_.size);
  return memory_->bytes().data() + sizeof(Header) + size * sizeof(RankState) +
         (static_cast<size_t>(parity) * size + static_cast<size_t>(rank)) * kSlotBytes;
}

std::byte* SharedGroup::Arena(int rank) const {
  return Slot(2, 0) + static_cast<size_t>(rank) * arena_bytes();
}

size_t SharedGroup::arena_bytes() const { return RoundUp(options_.arena_bytes); }

std::unique_ptr<Communicator> SharedGroup::Join(int rank) {
  return std::make_unique<SharedCommunicator>(*this, rank);
}

bool SharedGroup::aborted() const { return header().aborted.load() != 0; }

void SharedGroup::Abort() {
  header().aborted.store(1);
  for (int i = 0; i < options_.size; ++i) {
    rank(i).wake.fetch_add(1);
    FutexWakeAll(rank(i).wake);
  }
}

}  // namespace quire::kernels
