// The messages between router and worker as plain values: the meaning of
// proto/quire/v1/worker.proto, without Protobuf. Routers and workers use only these types;
// router_frames.h and worker_frames.h turn them into frames and back.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "common/ids.h"
#include "common/wire/adapter_orders.h"
#include "common/wire/constraint.h"
#include "common/wire/hello.h"
#include "common/wire/outputs.h"
#include "common/wire/sampling.h"
#include "common/wire/shared_tokens.h"
#include "common/wire/thought_budget.h"

namespace quire {

inline constexpr size_t kMaxFrameBytes = 1u << 20;
inline constexpr size_t kMaxPromptIdsPerFrame = 131072;  // more travel in SubmitPart frames
inline constexpr int kFrameIntervalMs = 200;             // a worker is never silent for longer
inline constexpr int kRouterSilenceMs = 5000;  // a router silent for longer has lost its Attach
inline constexpr size_t kMaxSaltBytes = 64;
inline constexpr size_t kMaxTenantBytes = 256;
inline constexpr size_t kMaxPredictionIds = 65'536;  // of a Submit: further ones are cut
inline constexpr size_t kTextBundleChunkBytes = 512u << 10;
inline constexpr size_t kMaxTextBundleBytes = 128u << 20;

struct ResumedChoice {
  std::vector<TokenId> outputs;
  bool ended = false;
};

struct Submit {
  AttemptKey key;
  uint64_t submit_number = 0;
  SharedTokens prompt_ids;
  SharedTokens prediction_ids;  // what the client expects as its outputs; at most kMaxPredictionIds
  std::vector<ResumedChoice> choices;  // at least one
  SamplingParams sampling;
  uint64_t remaining_ms = 0;  // 0 is no deadline
  int32_t priority = 0;
  std::string tenant;
  std::string salt;
  std::string adapter;  // digest; empty: the model alone
  Constraint constraint;
  std::shared_ptr<const ThoughtBudget> thought_budget;  // null: thoughts end by themselves
  uint32_t initial_window = 0;                          // 0 is unlimited
  std::vector<std::string> required_features;
  std::string traceparent;
  std::string tracestate;
  std::string request_id;
  std::string model_id;

  // Something says which tokens its choices may write next.
  bool constrained() const {
    return constraint.kind != ConstraintKind::kNone || thought_budget != nullptr;
  }
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
struct SnapshotRequest {
  uint64_t snapshot_number = 0;
};
struct Heartbeat {
  uint64_t sent_at_ms = 0;
};

}  // namespace quire
