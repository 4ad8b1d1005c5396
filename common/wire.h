// What router and worker tell each other, as plain values: the meaning of
// proto/quire/v1/worker.proto, free of Protobuf. `worker/rpc` and `router/link` turn them into
// frames and back.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "common/hello.h"
#include "common/ids.h"
#include "common/sampling_params.h"

namespace quire {

inline constexpr size_t kMaxFrameBytes = 1u << 20;
inline constexpr size_t kMaxPromptIdsPerFrame = 131072;  // more travel in SubmitPart frames
inline constexpr int kFrameIntervalMs = 200;             // a worker is never silent for longer
inline constexpr int kRouterSilenceMs = 5000;  // a router silent for longer has lost its Attach
inline constexpr size_t kMaxSaltBytes = 64;
inline constexpr size_t kMaxTenantBytes = 256;
inline constexpr size_t kTextBundleChunkBytes = 512u << 10;
inline constexpr size_t kMaxTextBundleBytes = 128u << 20;

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

struct ResumedChoice {
  std::vector<TokenId> outputs;
  bool ended = false;
};

struct Submit {
  AttemptKey key;
  uint64_t submit_number = 0;
  std::vector<TokenId> prompt_ids;
  std::vector<ResumedChoice> choices;  // at least one
  SamplingParams sampling;
  uint64_t remaining_ms = 0;  // 0 is no deadline
  int32_t priority = 0;
  std::string tenant;
  std::string salt;
  std::string adapter;
  bool constrained = false;
  uint32_t initial_window = 0;  // 0 is unlimited
  std::vector<std::string> required_features;
  std::string traceparent;
  std::string tracestate;
  std::string request_id;
  std::string model_id;
};

struct TopLogprobs {
  std::vector<TokenId> ids;
  std::vector<float> logprobs;
};

struct Output {
  AttemptKey key;
  uint32_t choice = 0;
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

struct StepFrame {
  uint64_t frame_seq = 0;
  uint64_t event_seq = 0;
  std::vector<Admitted> admitted;
  std::vector<Output> outputs;
  std::vector<PromptLogprobs> prompt_logprobs;
  std::vector<Ended> ended;
  std::vector<Refused> refused;
  std::vector<CacheEvents> events;
  Load load;
  uint64_t last_admitted_submit = 0;
  uint32_t routers_attached = 0;
  WorkerState state = WorkerState::kStarting;
  uint32_t step_age_ms = 0;
  uint32_t step_limit_ms = 0;
  bool events_dropped = false;
  uint64_t heartbeat_echo_ms = 0;
  uint64_t first_event_seq = 0;
};

struct Cancel {
  AttemptKey key;
  bool one_choice = false;
  uint32_t choice = 0;
};
struct Finish {
  AttemptKey key;
  uint32_t choice = 0;
  EndReason reason = EndReason::kStop;
  uint32_t output_count = 0;
};
struct Grant {
  AttemptKey key;
  uint32_t choice = 0;
  uint64_t up_to_index = 0;
};

}  // namespace quire
