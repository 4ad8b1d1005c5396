// Fuzzes what crosses the shared memory between the engine and a rank: messages, the ring that
// carries them, and what a rank does with what it is told. The first byte says which.
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <iterator>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "kernels/collectives/futex.h"
#include "tests/support/packet_limits.h"
#include "worker/ranks/adapter_arena.h"
#include "worker/ranks/expected_results.h"
#include "worker/ranks/host_channel.h"
#include "worker/ranks/rank.h"
#include "worker/ranks/rank_messages.h"

namespace quire {
namespace {

using Bytes = std::span<const std::byte>;

void MustBe(bool holds) {
  if (!holds) std::abort();
}

// What was accepted is written as the same bytes.
template <class Message, class Encode>
void MustEncodeTo(const Message& message, const Encode& encode, Bytes wanted) {
  std::vector<std::byte> again;
  encode(message, again);
  MustBe(again.size() == wanted.size() &&
         std::memcmp(again.data(), wanted.data(), wanted.size()) == 0);
}

void Setup(Bytes bytes) {
  RankSetup setup;
  if (!DecodeRankSetup(bytes, setup).ok()) return;
  MustBe(setup.rank >= 0 && setup.rank < setup.size);
  MustEncodeTo(setup, EncodeRankSetup, bytes);
}

void Ready(Bytes bytes) {
  RankReady ready;
  if (DecodeRankReady(bytes, ready).ok()) MustEncodeTo(ready, EncodeRankReady, bytes);
}

void Result(Bytes bytes) {
  const StepLimits limits = test::SmallPacketLimits();
  RankResult result;
  if (!DecodeRankResult(bytes, limits, result).ok()) return;
  size_t tops = 0;
  for (const SampledToken& sample : result.step.samples) {
    MustBe(sample.token < limits.vocab_size && sample.row < limits.max_rows);
    tops += result.step.Top(sample.top).ids.size();
  }
  for (const ScoredToken& score : result.step.scores) tops += result.step.Top(score.top).ids.size();
  MustBe(tops <= (result.step.samples.size() + result.step.scores.size()) * kMaxLogprobs);
  (void)ChainDigest(1, 2, result.step);
  if (result.full) MustEncodeTo(result, EncodeRankResult, bytes);
  // A step that asked for nothing is answered by nothing alone.
  ExpectedResults expected(limits, 1);
  StepPlan plan;
  plan.number = 1;
  std::vector<std::byte> packet;
  EncodeStepPlan(plan, packet);
  expected.Launch(packet);
  MustBe(!expected.Fits(result.step) || (result.step.samples.empty() && result.step.number == 1));
}

void Masks(Bytes bytes) {
  const StepLimits limits = test::SmallPacketLimits();
  RankMasks masks;
  if (!DecodeRankMasks(bytes, limits, masks).ok()) return;
  const size_t words = (static_cast<size_t>(limits.vocab_size) + 31) / 32;
  for (size_t i = 0; i < masks.sequences.size(); ++i) MustBe(masks.Of(i).size() == words);
  MustEncodeTo(masks, EncodeRankMasks, bytes);
}

void AdapterSlot(Bytes bytes) {
  StepLimits limits = test::SmallPacketLimits();
  limits.max_loras = 4;
  RankAdapterSlot slot;
  if (!DecodeRankAdapterSlot(bytes, limits, slot).ok()) return;
  MustBe(slot.slot >= 0 && slot.slot < limits.max_loras && slot.number > 0);
  MustEncodeTo(slot, EncodeRankAdapterSlot, bytes);
}

// A rank's piece of the memory of adapters; what it reads is within the piece.
void AdapterPiece(Bytes bytes) {
  constexpr int kRank = 8;
  const std::vector<kernels::LoraTarget> targets = {{{"m"}, 24, 16, {{0, 24}}, 0, 16},
                                                    {{"n"}, 8, 40, {{0, 8}}, 0, 40}};
  static const auto arena = AdapterArena::Create({1, 1, AdapterArena::PieceBytes(targets, kRank)});
  MustBe(arena.ok());
  std::string error;
  static const auto memory = kernels::SharedMemory::Open(dup((*arena)->fd()), 1, error);
  MustBe(memory != nullptr);
  const auto piece = memory->bytes().last(static_cast<size_t>((*arena)->shape().rank_bytes));
  std::memcpy(piece.data(), bytes.data(), std::min(bytes.size(), piece.size()));
  const auto read = (*arena)->Read(0, 0, targets, kRank);
  if (!read.ok()) return;
  for (const kernels::AdapterMatrices& own : read->targets) {
    for (const kernels::WeightSource* source : {&own.a, &own.b}) {
      const auto size = own.a.rows == 0 ? 0 : static_cast<size_t>(source->Bytes());
      const std::vector<std::byte> copy(source->data, source->data + size);
      MustBe(copy.size() == size);
    }
  }
}

// The ring's memory as a rank gone mad leaves it: positions and bells, then the data.
void Ring(Bytes bytes) {
  const auto engine = HostChannel::Create();
  MustBe(engine.ok());
  std::string error;
  const auto memory = kernels::SharedMemory::Open(dup((*engine)->fd()), 1, error);
  const std::span<std::byte> results = memory->bytes().subspan(SharedRing::BytesNeeded());
  std::memcpy(results.data(), bytes.data(), std::min(bytes.size(), results.size()));
  ChannelMessage message;
  for (int i = 0; i < 8; ++i) {
    if ((*engine)->Receive(message, kernels::FutexNowMicros()) != ChannelState::kOk) break;
    (void)message.Text();
  }
  (void)(*engine)->Send(1, bytes, {}, kernels::FutexNowMicros());
}

class PacketReader final : public RankProgram {
 public:
  explicit PacketReader(const StepLimits& limits) : limits_(limits) {}
  absl::Status Run(std::span<const std::byte> packet, StepResult& result) override {
    QUIRE_RETURN_IF_ERROR(DecodeStepPlan(packet, limits_, plan_));
    result.Clear();
    result.number = plan_.number;
    return absl::OkStatus();
  }
  RankReady Describe() override { return {"fuzz", 1}; }

 private:
  const StepLimits limits_;
  StepPlan plan_;
};

// A rank that is told the input: pairs of a kind and a length of one byte each, then so many bytes.
void Rank(Bytes bytes) {
  const auto engine = HostChannel::Create();
  MustBe(engine.ok());
  const auto rank = HostChannel::Open(dup((*engine)->fd()));
  MustBe(rank.ok());
  for (int messages = 0; bytes.size() >= 2 && messages < 64; ++messages) {
    const auto kind = static_cast<uint32_t>(bytes[0]);
    const size_t size = std::min(static_cast<size_t>(bytes[1]), bytes.size() - 2);
    (void)(*engine)->Send(kind, bytes.subspan(2, size), {}, kernels::FutexNowMicros());
    bytes = bytes.subspan(2 + size);
  }
  (*engine)->Close();
  std::unique_ptr<kernels::SharedGroup> group;
  const GroupOpener open = [&](const RankSetup& setup) -> absl::StatusOr<kernels::SharedGroup*> {
    if (setup.size > 4 || setup.arena_bytes > 4096) return absl::InternalError("too large to try");
    std::string error;
    group = kernels::SharedGroup::Create({setup.size, setup.arena_bytes}, error);
    MustBe(group != nullptr);
    return group.get();
  };
  const RankBuilder build =
      [](const RankParts& parts,
         const RankProgress& progress) -> absl::StatusOr<std::unique_ptr<RankProgram>> {
    progress();
    return std::make_unique<PacketReader>(parts.setup.limits);
  };
  (void)ServeRank(**rank, open, build);
}

}  // namespace
}  // namespace quire

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const quire::Bytes bytes(reinterpret_cast<const std::byte*>(data) + 1, size - 1);
  constexpr void (*kTargets[])(quire::Bytes) = {
      quire::Setup, quire::Ready, quire::Result,      quire::Ring,
      quire::Rank,  quire::Masks, quire::AdapterSlot, quire::AdapterPiece};
  kTargets[data[0] % std::size(kTargets)](bytes);
  return 0;
}
