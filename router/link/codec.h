// Frames of the worker wire, to and from plain values: the only file of the router that sees their
// Protobuf outside the gRPC adapters.
//
// Pure functions; any thread.
//  1. What a worker sends is hostile input: every count, length and number is checked here, so that
//     later code may rely on the bounds that the comments below name. A broken frame is
//     INVALID_ARGUMENT.
//  2. Enumerators that this version doesn't know become the cautious one: an end is a failure, a
//     state is not ready, a refusal is unspecified.
//  3. No frame that is written exceeds kMaxFrameBytes.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "common/status.h"
#include "common/wire.h"

namespace quire {

inline constexpr int kMaxFrameItems = 16384;  // entries of each list of a frame
inline constexpr int kMaxHelloStrings = 128;  // features, served names
inline constexpr size_t kMaxHelloStringBytes = 256;
inline constexpr size_t kMaxMessageBytes = 4096;  // of an error that a worker words; longer is cut
// Outputs that one Submit can resume from, all choices together: they travel in its first frame.
inline constexpr size_t kMaxResumedIds = 262'144;
inline constexpr int kMaxCacheGroupKinds = 16;
inline constexpr uint32_t kMaxServedModelLen = 1u << 26;
inline constexpr uint32_t kMaxServedVocab = 2'000'000;

struct SnapshotChunk {
  uint64_t snapshot_number = 0;
  uint32_t index = 0;
  bool last = false;
  uint32_t cache_kind = 0;
  std::vector<uint64_t> hashes;
  std::vector<uint64_t> parents;  // as many as hashes
  uint64_t event_seq = 0;
};
struct DrainingNotice {
  uint64_t remaining_ms = 0;
};
struct AttachRefused {
  std::string message;
  bool fenced = false;
};
using WorkerMessage =
    std::variant<WorkerHello, StepFrame, SnapshotChunk, DrainingNotice, AttachRefused>;

// `storage`: of an earlier Step that is done with; what is small of it is used again, so that a
// step does not have to be given memory for each of its rows.
absl::StatusOr<WorkerMessage> DecodeWorkerFrame(std::string_view frame, StepFrame storage = {});

std::string EncodeHello(const RouterHello& hello);
// The Submit and the parts that hold what its first frame has no room for, in order. Ids are ≥ 0.
std::vector<std::string> EncodeSubmit(const Submit& submit);
std::string EncodeCancel(const Cancel& cancel);
std::string EncodeFinish(const Finish& finish);
std::string EncodeGrant(const Grant& grant);
std::string EncodeSnapshotRequest(uint64_t snapshot_number);
std::string EncodeHeartbeat(uint64_t sent_at_ms);

}  // namespace quire
