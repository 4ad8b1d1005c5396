// The messages between the engine and its ranks, as flat, versioned bytes, and the digest that
// proves that all ranks did the same.
//
// Pure. Encoding never fails; decoding trusts nothing, since its input comes from another process.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "common/status.h"
#include "worker/core/step_plan.h"
#include "worker/runner/step_packet.h"

namespace quire {

inline constexpr uint32_t kRankMessagesVersion = 6;
inline constexpr size_t kMaxRankTextBytes = 4096;

enum class RankMessage : uint32_t {
  // to a rank
  kSetup = 1,  // RankSetup, once
  kStep,       // RankStep and the packet
  kLeave,      // nothing
  kMasks,      // RankMasks, behind the packet of a step that samples constrained rows
  kAdapter,    // RankAdapterSlot, between two packets
  // from a rank
  kProgress = 16,  // nothing: it still loads
  kReady,          // RankReady, once
  kResult,         // RankResult; of rank 0 with the samples
  kFailed,         // a line of text: its last message
};

struct RankSetup {
  int32_t rank = 0;
  int32_t size = 1;
  uint64_t arena_bytes = 0;  // of the collectives' memory, for each rank
  StepLimits limits;
  // Digest of the model's text, which a rank does not read but must name: identities cover all of a
  // model.
  std::string text_digest;
  std::string device;  // the devices that --device means on this machine; empty: as it says
};

struct RankReady {
  std::string identity;  // model and numerics as this rank has loaded them
  int64_t resident_bytes = 0;
  int64_t page_count = 0;          // that its device has memory for; 0: as many as were requested
  int64_t device_total_bytes = 0;  // of a device with memory of its own
  int64_t device_free_bytes = 0;
};

struct RankStep {
  int64_t wait_micros = 0;  // how long its collectives may wait
};

// The masks of a step's constrained rows: of each row one, and one more for each of its drafts.
struct RankMasks {
  std::vector<uint64_t> sequences;  // by mask
  std::vector<uint32_t> words;      // [sequences, words of a mask]

  std::span<const uint32_t> Of(size_t index) const {
    const size_t each = sequences.empty() ? 0 : words.size() / sequences.size();
    return std::span(words).subspan(index * each, each);
  }
};

// From the next packet on the slot holds this content of the ranks' memory of adapters.
struct RankAdapterSlot {
  int32_t slot = 0;
  int32_t entry = 0;
  uint64_t number = 0;
};

struct RankResult {
  uint64_t digest = 0;            // after this step
  bool full = false;              // `step` has samples and scores, else only its number and time
  int64_t device_free_bytes = 0;  // as of the last reading
  StepResult step;
};

void EncodeRankSetup(const RankSetup& setup, std::vector<std::byte>& bytes);
absl::Status DecodeRankSetup(std::span<const std::byte> bytes, RankSetup& setup);

void EncodeRankReady(const RankReady& ready, std::vector<std::byte>& bytes);
absl::Status DecodeRankReady(std::span<const std::byte> bytes, RankReady& ready);

// The header of a packet.
inline constexpr size_t kRankStepBytes = 8;
void EncodeRankStep(const RankStep& step, std::vector<std::byte>& bytes);

void EncodeRankMasks(const RankMasks& masks, std::vector<std::byte>& bytes);
// `masks` keeps its memory; unspecified after a failure.
absl::Status DecodeRankMasks(std::span<const std::byte> bytes, const StepLimits& limits,
                             RankMasks& masks);

void EncodeRankAdapterSlot(const RankAdapterSlot& slot, std::vector<std::byte>& bytes);
absl::Status DecodeRankAdapterSlot(std::span<const std::byte> bytes, const StepLimits& limits,
                                   RankAdapterSlot& slot);

void EncodeRankResult(const RankResult& result, std::vector<std::byte>& bytes);
// `result` keeps its memory; unspecified after a failure.
absl::Status DecodeRankResult(std::span<const std::byte> bytes, const StepLimits& limits,
                              RankResult& result);

// H(previous, packet, tokens): XXH3-64 over the three, tokens with whether their logits were
// numbers. The first step's `previous` is 0.
uint64_t PacketDigest(std::span<const std::byte> packet);
uint64_t ChainDigest(uint64_t previous, uint64_t packet_digest, const StepResult& result);

}  // namespace quire
