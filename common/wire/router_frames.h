// Frames that routers send, to and from plain values.
//
// Pure functions; any thread.
//  1. A worker treats a router's data as hostile input: every count, length, enumerator and number
//     is checked here.
//  2. A Submit that is wrong is a value (BadSubmit), not a broken stream: it is refused, and its
//     router keeps its other requests. Anything else that is wrong is INVALID_ARGUMENT and ends the
//     Attach.
//  3. Every field of a Submit is passed on or refused; fields unknown to this version are refused.
//  4. No frame that is written exceeds kMaxFrameBytes.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "common/status.h"
#include "common/wire/values.h"

namespace quire {

inline constexpr size_t kMaxSubmitParts = 64;
inline constexpr size_t kMaxFeatures = 128;  // in a Hello; in a Submit's requirements
inline constexpr size_t kMaxFeatureBytes = 64;
inline constexpr size_t kMaxAdapterBytes = 256;
inline constexpr size_t kMaxTraceparentBytes = 128;
inline constexpr size_t kMaxTracestateBytes = 512;
inline constexpr size_t kMaxFrameRequestIdBytes = 512;
inline constexpr size_t kMaxModelIdBytes = 256;
// Outputs that one Submit can resume from, all choices together: they travel in its first frame.
inline constexpr size_t kMaxResumedIds = 262'144;

// The limits that the values of a Submit are compared with.
struct DecodeLimits {
  int32_t vocab_size = 0;
  uint32_t max_choices = 1;
};

struct SubmitFrame {
  Submit submit;       // prompt_ids holds the ids of this frame
  uint32_t parts = 0;  // SubmitPart frames that follow
};
struct BadSubmit {
  Refused refused;
  uint64_t submit_number = 0;
};
struct SubmitPart {
  AttemptKey key;
  uint32_t index = 0;
  std::vector<TokenId> prompt_ids;  // at least one; not yet compared with the vocabulary
};
using RouterMessage = std::variant<RouterHello, SubmitFrame, BadSubmit, SubmitPart, Cancel, Finish,
                                   Grant, SnapshotRequest, Heartbeat, AdapterOrder>;

absl::StatusOr<RouterMessage> DecodeRouterFrame(std::string_view frame, const DecodeLimits& limits);

// INVALID_ARGUMENT that names the field and the first id outside [0, vocab_size).
absl::Status CheckTokenIds(std::string_view field, std::span<const TokenId> ids,
                           int32_t vocab_size);

std::string EncodeHello(const RouterHello& hello);
// The Submit, and the parts that hold what does not fit in its first frame, in order. Ids are ≥ 0.
// A prediction is cut to what the first frame has room for.
std::vector<std::string> EncodeSubmit(const Submit& submit);
std::string EncodeCancel(const Cancel& cancel);
std::string EncodeFinish(const Finish& finish);
std::string EncodeGrant(const Grant& grant);
std::string EncodeSnapshotRequest(uint64_t snapshot_number);
std::string EncodeHeartbeat(uint64_t sent_at_ms);
// Requires: a name and a path within their limits.
std::string EncodeAdapterOrder(const AdapterOrder& order);

}  // namespace quire
