// The dispatcher's inputs, its events, and its counters: plain values.
#pragma once

#include <cstdint>
#include <string>
#include <type_traits>
#include <variant>

#include "common/counted.h"
#include "common/runtime/runtime.h"
#include "common/wire/values.h"
#include "router/core/api.h"
#include "router/dispatch/attempt_report.h"
#include "router/fleet/fleet.h"
#include "router/link/link.h"
#include "router/routing/policy.h"

namespace quire {

// A resumed request that every worker refused is offered again after this time.
inline constexpr Micros kTurnedDownPause = 100 * kMicrosPerMilli;
// A request that would be suspect if open losses proved to be deaths is not placed for this long.
// The time is longer than the longest pause between two dials, which close the losses.
inline constexpr Micros kDeathVerdictWait = 6 * kMicrosPerSecond;

// Where an answer may continue when its worker is gone: only where the same bits come out (equal
// numerics_id), or, if there is no such worker, anywhere from the same tokens.
enum class CarryOnMode : uint8_t { kTokens, kExact };

struct DispatchOptions {
  RouterInstance instance;
  const Policy* policy = &Policies().front();
  RouterLimits limits;
  LinkOptions link;      // target and worker are filled in
  bool carry_on = true;  // resume on another worker what has already produced output
  CarryOnMode carry_on_mode = CarryOnMode::kTokens;
  bool traces_attempts = false;  // each has a span, whose id its worker gets
};

struct DispatchRequest {
  RequestNumber number;  // unique in this router
  // Prompt, state of the choices, sampling, names. The dispatcher fills in key, window and
  // remaining time.
  Submit submit;
  std::string model_name;        // for messages
  std::string session;           // the client's session, for policies that keep one on its worker
  Micros deadline = 0;           // 0 is none
  bool router_is_taker = false;  // the answer is collected here: accepted outputs count as taken
};

// All count events since start.
struct DispatchCounters {
  uint64_t attempts = 0;
  uint64_t tokens_accepted = 0;
  uint64_t windows_full =
      0;  // times that a worker reached the limit of how far ahead of the client it may be
  uint64_t outputs_stale = 0;  // of attempts that are not current
  uint64_t outputs_duplicate = 0;
  uint64_t outputs_late = 0;     // outputs of choices that have ended
  uint64_t attempts_broken = 0;  // broken by a gap, an overrun or an unknown choice
  uint64_t placement_retries = 0;
  uint64_t placement_retries_denied = 0;  // refused by the budget of the router
  uint64_t carry_ons = 0;
  uint64_t carry_ons_inexact = 0;  // resumed where bits are not the same
  uint64_t carry_ons_paced = 0;    // times that a resumed request waited for recompute in flight
  uint64_t links_lost = 0;
  uint64_t links_of_duplicates = 0;  // refused: another link has their worker_id
  uint64_t worker_deaths = 0;
  uint64_t worker_deaths_taken_back = 0;
  uint64_t silences = 0;                   // workers given up for their silence
  uint64_t silences_kept = 0;              // silent workers not given up: too many were
  uint64_t requests_suspect = 0;           // ended because workers kept dying under them
  uint64_t suspect_prompts_refused = 0;    // came again too soon
  uint64_t suspect_prompts_forgotten = 0;  // dropped for others
  uint64_t adapter_orders = 0;
  uint64_t adapter_orders_refused = 0;  // the most were under way
  uint64_t frames_relayed = 0;
  uint64_t relay_us = 0;  // spent on these, until their events were drained
};
inline constexpr Counted<DispatchCounters> kDispatchCounts[] = {
    {&DispatchCounters::attempts, "quire_router_attempts_total", "Submits sent to workers."},
    {&DispatchCounters::tokens_accepted, "quire_router_accepted_tokens_total",
     "Output tokens accepted from workers."},
    {&DispatchCounters::outputs_stale, "quire_router_stale_outputs_total",
     "Outputs dropped: their attempt is not current."},
    {&DispatchCounters::outputs_duplicate, "quire_router_duplicate_outputs_total",
     "Outputs dropped: their tokens had come already."},
    {&DispatchCounters::attempts_broken, "quire_router_broken_attempts_total",
     "Attempts given up: outputs were missing or too many."},
    {&DispatchCounters::placement_retries, "quire_router_placement_retries_total",
     "Second attempts before any output."},
    {&DispatchCounters::carry_ons, "quire_router_carry_ons_total",
     "Attempts that resumed an answer on another worker."},
    {&DispatchCounters::links_lost, "quire_router_lost_links_total",
     "Attaches that ended, for whatever reason."},
    {&DispatchCounters::placement_retries_denied, "quire_router_placement_retries_denied_total",
     "Retries that --placement-retry-percent denied."},
    {&DispatchCounters::carry_ons_inexact, "quire_router_inexact_carry_ons_total",
     "Carry-ons on a worker of other numerics."},
    {&DispatchCounters::carry_ons_paced, "quire_router_paced_carry_ons_total",
     "Carry-ons that --max-carry-on-tokens made wait."},
    {&DispatchCounters::worker_deaths, "quire_router_worker_deaths_total",
     "Workers that died: epochs that ended without draining."},
    {&DispatchCounters::worker_deaths_taken_back, "quire_router_worker_deaths_taken_back_total",
     "Deaths counted early of workers that lived."},
    {&DispatchCounters::silences, "quire_router_silent_workers_total",
     "Workers given up because nothing came from them."},
    {&DispatchCounters::silences_kept, "quire_router_kept_silences_total",
     "Silent workers that were kept, since too many were."},
    {&DispatchCounters::requests_suspect, "quire_router_suspect_requests_total",
     "Requests ended by --max-worker-deaths."},
    {&DispatchCounters::suspect_prompts_refused, "quire_router_suspect_prompts_refused_total",
     "Prompts refused, workers had died under them."},
    {&DispatchCounters::suspect_prompts_forgotten, "quire_router_suspect_prompts_forgotten_total",
     "Of these, what --max-suspect-prompts made forget."},
    {&DispatchCounters::links_of_duplicates, "quire_router_duplicate_workers_total",
     "Links refused: their worker_id is another link's."},
    {&DispatchCounters::windows_full, "quire_router_full_windows_total",
     "Times that --window-tokens made a worker wait for a client."},
    {&DispatchCounters::outputs_late, "quire_router_late_outputs_total",
     "Outputs dropped: their choice had ended."},
    {&DispatchCounters::adapter_orders, "quire_router_adapter_orders_total",
     "Orders to load or unload an adapter that went to workers."},
    {&DispatchCounters::adapter_orders_refused, "quire_router_adapter_orders_refused_total",
     "Orders about adapters refused since the most that may wait were under way."},
    {&DispatchCounters::frames_relayed, "quire_router_relayed_frames_total",
     "Step frames taken from workers."},
    {&DispatchCounters::relay_us, "quire_router_relay_seconds_total",
     "Time spent on them, from frame to the clients' writes.", /*micros=*/true}};

// What has happened, as Dispatcher::NextEvent returns it. Pointers are valid until its next call.
//
// A worker admitted the current attempt; its cache served this many tokens of prompt and outputs.
struct AttemptAdmitted {
  RequestNumber request;
  WorkerIndex worker;
  uint32_t cached_tokens = 0;
};
// An attempt is over, whatever happens to its request.
struct AttemptOver {
  RequestNumber request;
  const AttemptReport* report;
};
// Logprobs of the prompt: each position once, in order, all before the first output.
struct PromptScored {
  const PromptLogprobs* part;
};
struct OutputAccepted {
  const Output* output;
};
// The reason is STOP or LENGTH.
struct ChoiceOver {
  const Ended* ended;
};
struct RequestFailed {
  RequestNumber request;
  const ApiError* error;
};
// A worker attached, left, or changed its phase.
struct FleetChanged {
  WorkerIndex worker;
};
// A worker that had no room may have some now: call RoomFor again. Resumed requests have already
// been placed.
struct RoomMade {};

using DispatchEvent = std::variant<AttemptAdmitted, AttemptOver, PromptScored, OutputAccepted,
                                   ChoiceOver, RequestFailed, FleetChanged, RoomMade>;
// There is one for every output: it is copied as plain bytes.
static_assert(std::is_trivially_copyable_v<DispatchEvent>);

}  // namespace quire
