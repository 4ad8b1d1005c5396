// What a worker reports of its attempts: outputs, ends, refusals, cache events, load.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "common/ids.h"

namespace quire {

enum class EndReason : uint8_t {
  kUnspecified,
  kStop,
  kLength,
  kCancelled,
  kFailed,
  kDeadline,
  kRouterLost,
  kDrained,
  kSlowClient
};
enum class RefusalCode : uint8_t {
  kUnspecified,
  kInvalid,
  kQueueFull,
  kNotReady,
  kDraining,
  kTooLarge,
  kUnsupported,
  kStaleAttempt,
  kDuplicate,
  kWrongModel,
  kDeadlinePassed
};
enum class WorkerState : uint8_t { kStarting, kReady, kStuck, kDraining, kRecovering };

struct AttemptKey {
  RequestNumber request;
  Attempt attempt;
  friend constexpr auto operator<=>(const AttemptKey&, const AttemptKey&) = default;
};

struct TopLogprobs {
  std::vector<TokenId> ids;
  std::vector<float> logprobs;
};

struct Output {
  AttemptKey key;
  uint32_t choice = 0;
  // With a prediction: drafts that its step took and dropped.
  uint16_t accepted_prediction_tokens = 0, rejected_prediction_tokens = 0;
  uint64_t first_index = 0;
  absl::InlinedVector<TokenId, 4> ids;  // nearly always one: it needs no memory of its own
  std::vector<float> logprobs;
  std::vector<TopLogprobs> top;
};

struct PromptLogprobs {
  AttemptKey key;
  uint32_t first_position = 0;
  std::vector<float> logprobs;
  std::vector<TopLogprobs> top;
  std::vector<uint32_t> ranks;
};

struct AttemptUsage {
  uint32_t prompt_tokens = 0;
  uint32_t cached_tokens = 0;
  uint32_t computed_tokens = 0;
  uint32_t recomputed_tokens = 0;
  uint32_t generated_tokens = 0;
  uint32_t discarded_tokens = 0;
  uint32_t draft_tokens = 0;  // of speculation; none of them is in the counts above
  uint32_t accepted_draft_tokens = 0;
};

struct Ended {
  AttemptKey key;
  uint32_t choice = 0;
  EndReason reason = EndReason::kUnspecified;
  std::string message;
  bool last_choice = false;  // the attempt is over; usage is set
  AttemptUsage usage;
  bool by_stop_token = false;
  TokenId stop_token_id = 0;
  bool retryable = false;
};

struct Admitted {
  AttemptKey key;
  uint32_t cached_tokens = 0;
  uint64_t event_seq = 0;
};

struct Refused {
  AttemptKey key;
  RefusalCode code = RefusalCode::kUnspecified;
  std::string field;
  std::string message;
  uint32_t retry_after_ms = 0;
  // Of its Submit, for the worker's own traces and log; not sent.
  std::string traceparent{}, tracestate{}, request_id{};
};

struct CacheEvents {
  enum class Kind : uint8_t { kStored, kRemoved, kCleared };
  Kind kind = Kind::kStored;
  uint32_t cache_kind = 0;
  uint64_t parent = 0;           // low 64 bits; STORED only
  std::vector<uint64_t> hashes;  // low 64 bits
};

struct Load {
  uint32_t running_rows = 0;
  uint32_t waiting_requests = 0;
  uint64_t waiting_prefill_tokens = 0;
  uint64_t running_prefill_tokens = 0;
  uint64_t free_blocks = 0;
  uint64_t evictable_blocks = 0;
  uint64_t held_blocks = 0;
  uint64_t steps_total = 0;
};

// The output of one step for one router.
struct StepLists {
  std::vector<Admitted> admitted;
  std::vector<Output> outputs;
  std::vector<PromptLogprobs> prompt_logprobs;
  std::vector<Ended> ended;
  std::vector<Refused> refused;
  uint64_t last_admitted_submit = 0;
};

struct StepFrame : StepLists {
  uint64_t frame_seq = 0;
  uint64_t event_seq = 0;
  std::vector<CacheEvents> events;
  Load load;
  uint32_t routers_attached = 0;
  WorkerState state = WorkerState::kStarting;
  uint32_t step_age_ms = 0;
  uint32_t step_limit_ms = 0;
  bool events_dropped = false;
  uint64_t heartbeat_echo_ms = 0;
  uint64_t first_event_seq = 0;
};

// A part of what a worker has cached. It comes after the events up to event_seq and before all
// later ones.
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

}  // namespace quire
