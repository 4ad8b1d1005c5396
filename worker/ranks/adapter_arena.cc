#include "worker/ranks/adapter_arena.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstring>
#include <optional>
#include <string>
#include <utility>

#include "common/check.h"
#include "kernels/collectives/futex.h"

namespace quire {
namespace {

using kernels::Adapter;
using kernels::AdapterMatrices;
using kernels::DType;
using kernels::FutexNowMicros;
using kernels::LoraTarget;
using kernels::WeightSource;

constexpr uint32_t kArenaMark = 0x41525141;  // "AQRA"
constexpr int64_t kPage = 4096;
constexpr int64_t kWidestElement = 4;
constexpr int64_t kAlignment = 64;
constexpr int64_t kLookAtRanksMicros = 100'000;

int64_t Aligned(int64_t bytes, int64_t to) { return (bytes + to - 1) / to * to; }

// In front of a rank's matrices.
struct PieceHead {
  uint64_t targets = 0;
};
struct PieceTarget {
  uint32_t rank = 0;  // 0: the adapter leaves the target alone
  uint32_t type_a = 0;
  uint32_t type_b = 0;
  float scale = 1.0f;
  uint64_t a = 0;  // from the piece's begin
  uint64_t b = 0;
};

bool IsServed(uint32_t type) {
  return type == static_cast<uint32_t>(DType::kF32) || type == static_cast<uint32_t>(DType::kF16) ||
         type == static_cast<uint32_t>(DType::kBF16);
}

int64_t HeadBytes(size_t targets) {
  return Aligned(static_cast<int64_t>(sizeof(PieceHead) + targets * sizeof(PieceTarget)),
                 kAlignment);
}

// The bytes that a piece takes; 0: it has no room, or a type that is not served.
int64_t WritePiece(const Adapter& adapter, std::span<std::byte> piece) {
  const size_t count = adapter.targets.size();
  int64_t at = HeadBytes(count);
  const auto room = static_cast<int64_t>(piece.size());
  std::vector<PieceTarget> heads(count);
  const auto put = [&](const WeightSource& source) {
    const int64_t begin = at;
    at = Aligned(at + source.Bytes(), kAlignment);
    if (at > room) return begin;
    for (int64_t row = 0; row < source.rows; ++row) {
      std::memcpy(piece.data() + begin + row * source.RowBytes(), source.Row(row),
                  static_cast<size_t>(source.RowBytes()));
    }
    return begin;
  };
  for (size_t i = 0; i < count && at <= room; ++i) {
    const AdapterMatrices& from = adapter.targets[i];
    if (from.a.rows == 0) continue;
    heads[i].rank = static_cast<uint32_t>(from.a.rows);
    heads[i].type_a = static_cast<uint32_t>(from.a.type);
    heads[i].type_b = static_cast<uint32_t>(from.b.type);
    heads[i].scale = from.scale;
    if (!IsServed(heads[i].type_a) || !IsServed(heads[i].type_b)) return 0;
    heads[i].a = static_cast<uint64_t>(put(from.a));
    heads[i].b = static_cast<uint64_t>(put(from.b));
  }
  if (at > room) return 0;
  const PieceHead head{count};
  std::memcpy(piece.data(), &head, sizeof(head));
  if (count > 0) {
    std::memcpy(piece.data() + sizeof(head), heads.data(), count * sizeof(PieceTarget));
  }
  return at;
}

// A matrix at `at`; false: it is not whole within the piece.
bool Place(std::span<const std::byte> piece, uint64_t at, WeightSource& source) {
  const auto bytes = static_cast<uint64_t>(source.Bytes());
  if (at % kAlignment != 0 || at > piece.size() || bytes > piece.size() - at) return false;
  source.data = piece.data() + at;
  return true;
}

absl::Status Damaged() {
  return absl::InternalError("an adapter's matrices are damaged, or being replaced");
}

}  // namespace

struct AdapterArena::Entry {
  alignas(64) std::atomic<uint64_t> number;
  std::atomic<uint64_t> packed[kMaxArenaRanks];  // the number that each rank has packed
};

struct AdapterArena::Header {
  uint32_t mark;
  AdapterArenaShape shape;
  alignas(64) std::atomic<uint32_t> changes;  // of entries
  alignas(64) std::atomic<uint32_t> done;     // counts what ranks have packed
  alignas(64) Entry entries[kMaxArenaEntries];
};

AdapterArena::AdapterArena(const AdapterArenaShape& shape,
                           std::unique_ptr<kernels::SharedMemory> memory)
    : shape_(shape),
      memory_(std::move(memory)),
      used_(static_cast<size_t>(shape.entries)),
      bytes_(static_cast<size_t>(shape.entries)) {}

int64_t AdapterArena::PieceBytes(const std::vector<LoraTarget>& targets, int max_rank) {
  int64_t bytes = HeadBytes(targets.size());
  for (const LoraTarget& target : targets) {
    bytes += Aligned(target.col_count * max_rank * kWidestElement, kAlignment);
    bytes += Aligned(target.Width() * max_rank * kWidestElement, kAlignment);
  }
  return Aligned(bytes, kPage);
}

absl::StatusOr<std::shared_ptr<AdapterArena>> AdapterArena::Create(const AdapterArenaShape& shape) {
  QUIRE_CHECK(shape.entries > 0 && shape.entries <= kMaxArenaEntries);
  QUIRE_CHECK(shape.ranks > 0 && shape.ranks <= kMaxArenaRanks && shape.rank_bytes % kPage == 0);
  std::string error;
  const int64_t bytes = Aligned(static_cast<int64_t>(sizeof(Header)), kPage) +
                        shape.rank_bytes * shape.entries * shape.ranks;
  auto memory = kernels::SharedMemory::Create("quire-adapters", static_cast<size_t>(bytes), error);
  if (memory == nullptr) return absl::ResourceExhaustedError(AbslView(error));
  auto* header = reinterpret_cast<Header*>(memory->bytes().data());
  header->mark = kArenaMark;
  header->shape = shape;
  return std::shared_ptr<AdapterArena>(new AdapterArena(shape, std::move(memory)));
}

absl::StatusOr<std::unique_ptr<AdapterArena>> AdapterArena::Open(int fd) {
  std::string error;
  auto memory = kernels::SharedMemory::Open(fd, sizeof(Header), error);
  if (memory == nullptr) return absl::InternalError(AbslView(error));
  const auto* header = reinterpret_cast<const Header*>(memory->bytes().data());
  const AdapterArenaShape shape = header->shape;
  const auto room = static_cast<int64_t>(memory->bytes().size()) -
                    Aligned(static_cast<int64_t>(sizeof(Header)), kPage);
  const bool good = header->mark == kArenaMark && shape.entries > 0 &&
                    shape.entries <= kMaxArenaEntries && shape.ranks > 0 &&
                    shape.ranks <= kMaxArenaRanks && shape.rank_bytes > 0 && room > 0 &&
                    shape.rank_bytes <= room / shape.entries / shape.ranks;
  if (!good) return absl::InternalError("the memory of adapters is damaged");
  return std::unique_ptr<AdapterArena>(new AdapterArena(shape, std::move(memory)));
}

AdapterArena::Header& AdapterArena::header() const {
  return *reinterpret_cast<Header*>(memory_->bytes().data());
}

AdapterArena::Entry& AdapterArena::EntryAt(int entry) const {
  QUIRE_CHECK(entry >= 0 && entry < shape_.entries);
  return header().entries[entry];
}

std::span<std::byte> AdapterArena::Piece(int entry, int rank) const {
  QUIRE_CHECK(rank >= 0 && rank < shape_.ranks);
  const int64_t at = Aligned(static_cast<int64_t>(sizeof(Header)), kPage) +
                     (int64_t{entry} * shape_.ranks + rank) * shape_.rank_bytes;
  return memory_->bytes().subspan(static_cast<size_t>(at), static_cast<size_t>(shape_.rank_bytes));
}

std::optional<ArenaPlace> AdapterArena::TakeEntry() {
  MutexLock lock(mutex_);
  const auto free = std::find(used_.begin(), used_.end(), false);
  if (free == used_.end()) return std::nullopt;
  *free = true;
  return ArenaPlace{static_cast<int32_t>(free - used_.begin()), ++last_number_};
}

absl::StatusOr<ArenaPlace> AdapterArena::Put(std::span<const Adapter> by_rank,
                                             int64_t wait_micros) {
  QUIRE_CHECK(by_rank.size() == static_cast<size_t>(shape_.ranks));
  const std::optional<ArenaPlace> taken = TakeEntry();
  if (!taken.has_value()) {
    return absl::UnavailableError("no memory is free for another adapter; try again");
  }
  const ArenaPlace place = *taken;
  int64_t bytes = 0;
  for (int rank = 0; rank < shape_.ranks; ++rank) {
    const int64_t piece = WritePiece(by_rank[static_cast<size_t>(rank)], Piece(place.entry, rank));
    if (piece == 0) {
      Free(place);
      return absl::InternalError("an adapter does not fit into the memory of adapters");
    }
    bytes += piece;
  }
  {
    MutexLock lock(mutex_);
    bytes_[static_cast<size_t>(place.entry)] = bytes;
  }
  EntryAt(place.entry).number.store(place.number);
  WakeRanks();
  const absl::Status packed = AwaitPacked(place, FutexNowMicros() + wait_micros);
  if (packed.ok()) return place;
  Free(place);
  return packed;
}

absl::Status AdapterArena::AwaitPacked(const ArenaPlace& place, int64_t until_us) {
  const Entry& entry = EntryAt(place.entry);
  while (!closed_.load()) {
    const uint32_t seen = header().done.load();
    int left = 0;
    for (int rank = 0; rank < shape_.ranks; ++rank) {
      if (entry.packed[rank].load() != place.number) ++left;
    }
    if (left == 0) return absl::OkStatus();
    if (FutexNowMicros() >= until_us) {
      return absl::UnavailableError(AbslView(
          "ranks that have not taken the adapter: " + std::to_string(left) + "; try again"));
    }
    kernels::FutexWait(header().done, seen, kLookAtRanksMicros);
  }
  return absl::UnavailableError("the worker leaves");
}

void AdapterArena::Free(const ArenaPlace& place) {
  EntryAt(place.entry).number.store(0);
  for (int rank = 0; rank < shape_.ranks; ++rank) {
    const std::span<std::byte> piece = Piece(place.entry, rank);
    // Where the system cannot, the memory stays with the entry.
    (void)madvise(piece.data(), piece.size(), MADV_REMOVE);
  }
  WakeRanks();
  MutexLock lock(mutex_);
  used_[static_cast<size_t>(place.entry)] = false;
  bytes_[static_cast<size_t>(place.entry)] = 0;
}

void AdapterArena::Close() { closed_.store(true); }

int64_t AdapterArena::BytesOf(const ArenaPlace& place) const {
  MutexLock lock(mutex_);
  return bytes_[static_cast<size_t>(place.entry)];
}

uint64_t AdapterArena::NumberOf(int entry) const { return EntryAt(entry).number.load(); }

absl::StatusOr<Adapter> AdapterArena::Read(int entry, int rank,
                                           const std::vector<LoraTarget>& targets,
                                           int max_rank) const {
  const std::span<const std::byte> piece = Piece(entry, rank);
  PieceHead head;
  std::memcpy(&head, piece.data(), sizeof(head));
  if (head.targets != targets.size() ||
      HeadBytes(targets.size()) > static_cast<int64_t>(piece.size())) {
    return Damaged();
  }
  Adapter adapter;
  adapter.targets.resize(targets.size());
  for (size_t i = 0; i < targets.size(); ++i) {
    PieceTarget from;
    std::memcpy(&from, piece.data() + sizeof(head) + i * sizeof(from), sizeof(from));
    if (from.rank == 0) continue;
    if (from.rank > static_cast<uint32_t>(max_rank) || !IsServed(from.type_a) ||
        !IsServed(from.type_b)) {
      return Damaged();
    }
    AdapterMatrices& own = adapter.targets[i];
    own.a = {static_cast<DType>(from.type_a), from.rank, targets[i].col_count};
    own.b = {static_cast<DType>(from.type_b), targets[i].Width(), from.rank};
    own.scale = from.scale;
    if (!Place(piece, from.a, own.a) || !Place(piece, from.b, own.b)) return Damaged();
  }
  return adapter;
}

void AdapterArena::SetPacked(const ArenaPlace& place, int rank) {
  QUIRE_CHECK(rank >= 0 && rank < shape_.ranks);
  EntryAt(place.entry).packed[rank].store(place.number);
  header().done.fetch_add(1);
  kernels::FutexWakeAll(header().done);
}

uint32_t AdapterArena::Changes() const { return header().changes.load(); }

void AdapterArena::AwaitChange(uint32_t seen, int64_t timeout_micros) {
  kernels::FutexWait(header().changes, seen, timeout_micros);
}

void AdapterArena::WakeRanks() {
  header().changes.fetch_add(1);
  kernels::FutexWakeAll(header().changes);
}

}  // namespace quire
