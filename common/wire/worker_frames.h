// Frames that workers send, to and from plain values.
//
// Pure functions; any thread.
//  1. A router treats a worker's data as hostile input: every count, length and number is checked
//     here, so that later code may rely on the bounds that the comments below name. A broken frame
//     is INVALID_ARGUMENT.
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
#include "common/wire/values.h"

namespace quire {

inline constexpr int kMaxFrameItems = 16384;  // entries of each list of a frame
inline constexpr int kMaxHelloStrings = 128;  // features, served names
inline constexpr size_t kMaxHelloStringBytes = 256;
inline constexpr int kMaxServedAdapters = 512;  // of a Hello
inline constexpr size_t kAdapterDigestBytes = 64;
inline constexpr size_t kMaxWireMessageBytes = 4096;  // of a refusal or failure; longer is cut
inline constexpr int kMaxCacheGroupKinds = 16;
inline constexpr uint32_t kMaxServedModelLen = 1u << 26;
inline constexpr uint32_t kMaxServedVocab = 2'000'000;

using WorkerMessage = std::variant<WorkerHello, StepFrame, SnapshotChunk, DrainingNotice,
                                   AttachRefused, AdapterResult, AdaptersChanged>;

// `storage`: an earlier Step that is no longer needed; its small objects are reused, so that a step
// does not need new memory for each of its rows.
absl::StatusOr<WorkerMessage> DecodeWorkerFrame(std::string_view frame, StepFrame storage = {});

// Requires: what CheckAdapterName allows, and at most kMaxServedAdapters.
std::string EncodeWorkerHello(const WorkerHello& hello);
// Whether clients can name an adapter so: `MODEL:ADAPTER` is cut at its last colon.
// INVALID_ARGUMENT says what is wrong with it, without the name.
absl::Status CheckAdapterName(std::string_view name);
// Whether these can be a worker's under these names of its model; the frames' readers check the
// rest. INVALID_ARGUMENT says why not.
absl::Status CheckServedAdapters(const std::vector<ServedAdapter>& adapters,
                                 const std::vector<std::string>& served_names);
std::string EncodeAdapterResult(const AdapterResult& result);
// Requires: what EncodeWorkerHello does, and at most kMaxHeldAdapters.
std::string EncodeAdaptersChanged(const AdaptersChanged& changed);
std::string EncodeAttachRefused(std::string_view message, bool fenced);
std::string EncodeDraining(uint64_t remaining_ms);
std::string EncodeSnapshotChunk(const SnapshotChunk& chunk);

// One frame, or several when it would exceed kMaxFrameBytes: in order admitted, outputs, prompt
// logprobs, ended, refused, events, so that no end overtakes an output. Their frame numbers start
// at step.frame_seq and are contiguous; a list of outputs or logprobs that fits no frame is cut
// into slices with their own first index. If a single cache event fits no frame (> 100,000 blocks),
// the frame drops the events and states that it did.
std::vector<std::string> EncodeStep(const StepFrame& step);

// An estimate of the bytes that these take in a frame; never too low.
size_t EncodedBytesBound(const StepLists& lists);

}  // namespace quire
