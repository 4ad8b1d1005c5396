// Frames of the worker wire, to and from plain values: the only files of the worker that see their
// Protobuf outside the gRPC adapter.
//
// Pure functions; any thread.
//  1. What a router sends is hostile: every count, length, enumerator and number is checked here.
//  2. A Submit that is wrong is a value (BadSubmit), not a broken stream: it is refused, its router
//     keeps its other requests. Anything else that is wrong is INVALID_ARGUMENT and ends the
//     Attach.
//  3. Every field of a Submit is handed on or refused; fields unknown to this version are refused.
//  4. No frame that is written exceeds kMaxFrameBytes.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "common/status.h"
#include "common/wire.h"
#include "worker/core/engine_io.h"

namespace quire {

inline constexpr size_t kMaxSubmitParts = 64;
inline constexpr size_t kMaxFeatures = 128;  // in a Hello; in a Submit's requirements
inline constexpr size_t kMaxFeatureBytes = 64;
inline constexpr size_t kMaxAdapterBytes = 256;
inline constexpr size_t kMaxTraceparentBytes = 128;
inline constexpr size_t kMaxTracestateBytes = 512;
inline constexpr size_t kMaxRequestIdBytes = 512;
inline constexpr size_t kMaxModelIdBytes = 256;
inline constexpr size_t kMaxConstraintBytes = 256u << 10;
inline constexpr size_t kMaxWireMessageBytes = 4096;  // of a refusal or failure; longer is cut

// What the values of a Submit are checked against.
struct DecodeLimits {
  int32_t vocab_size = 0;
  uint32_t max_choices = 1;
};

struct SubmitFrame {
  Submit submit;       // prompt_ids holds what this frame carries
  uint32_t parts = 0;  // SubmitPart frames that follow
};
struct BadSubmit {
  Refused refused;
  uint64_t submit_number = 0;
};
struct SubmitPart {
  AttemptKey key;
  uint32_t index = 0;
  std::vector<TokenId> prompt_ids;  // at least one; not yet held against the vocabulary
};
struct SnapshotRequest {
  uint64_t snapshot_number = 0;
};
struct Heartbeat {
  uint64_t sent_at_ms = 0;
};
using RouterMessage = std::variant<RouterHello, SubmitFrame, BadSubmit, SubmitPart, Cancel, Finish,
                                   Grant, SnapshotRequest, Heartbeat>;

absl::StatusOr<RouterMessage> DecodeRouterFrame(std::string_view frame, const DecodeLimits& limits);

// INVALID_ARGUMENT that names the field and the first id outside [0, vocab_size).
absl::Status CheckTokenIds(std::string_view field, const std::vector<TokenId>& ids,
                           int32_t vocab_size);

std::string EncodeWorkerHello(const WorkerHello& hello);
std::string EncodeAttachRefused(std::string_view message, bool fenced);
std::string EncodeDraining(uint64_t remaining_ms);
std::string EncodeSnapshotPart(const SnapshotPart& part);

// One frame, or several when it would exceed kMaxFrameBytes: in order admitted, outputs, prompt
// logprobs, ended, refused, events, so that no end overtakes an output. Their frame numbers start
// at step.frame_seq and are contiguous; a list of outputs or logprobs that fits no frame is cut
// into slices with their own first index. A single cache event that fits no frame (> 100,000
// blocks) drops the events and says so.
std::vector<std::string> EncodeStep(const StepFrame& step);

// Roughly the bytes that these take in a frame; never less.
size_t EncodedBytesBound(const RouterOutput& output);

}  // namespace quire
