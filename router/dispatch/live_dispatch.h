// A request in the dispatcher: its journal, its windows, and the state of its attempt.
//
// Owner: the dispatcher. Plain state.
//  1. It runs, or waits in the line, never both.
//  2. What is booked elsewhere on its account (recompute in flight, a suspect's turn) is released
//     when its attempt is over.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "router/dispatch/death_ledger.h"
#include "router/dispatch/dispatch_types.h"
#include "router/dispatch/journal.h"
#include "router/dispatch/placement.h"
#include "router/dispatch/window.h"

namespace quire {

struct LiveDispatch {
  LiveDispatch(DispatchRequest request, uint32_t window_size);

  const std::string& pool() const { return request.submit.model_id; }
  // A beam search is reported at its end, whatever its taker does.
  bool Windowed() const { return request.submit.sampling.beam_width == 0; }
  std::vector<std::string> Features() const;
  // The numerics_id under which the outputs so far were computed; empty: unknown.
  const std::string& OutputsFrom() const {
    return report.accepted_tokens > 0 ? report.numerics_id : report.outputs_from;
  }
  // The hash by which deaths are counted; computed on first use, which never comes while no worker
  // dies.
  const PromptKey& Prompt() const;
  uint64_t FurthestChoice() const;  // in outputs
  // One number opens the windows of all unfinished choices; at least 1.
  uint32_t InitialWindow() const;
  // What the next attempt sends; the caller fills in key and remaining time.
  Submit MakeSubmit() const;

  DispatchRequest request;
  Journal journal;
  std::vector<Window> windows;  // per choice
  PlacementTicket ticket;

  // The attempt, if one is with a worker.
  Attempt attempt;
  bool running = false;
  bool answered = false;  // the worker admitted it
  WorkerIndex worker;
  bool suspect_turn = false;      // runs as the only suspect of its pool
  uint64_t recompute_tokens = 0;  // in flight at the worker, until its first output
  AttemptReport report;           // of the running attempt, or the last one

  // The next attempt.
  bool carry_on = false;              // it moved from a worker: goes ahead of new requests
  std::vector<WorkerIndex> excluded;  // workers that failed it since its last progress
  uint32_t placement_retries = 0;
  uint32_t stalled_carry_ons = 0;  // since its last progress
  uint32_t failures = 0;           // attempts that a worker failed or broke

  // The wait.
  bool waiting = false;
  bool paced = false;  // for lack of room for its recompute
  TimerId wait_timer = 0;
  Micros nobody_since = 0;          // since when no worker could ever take it; 0: some worker can
  Micros retry_at = 0;              // not placed before
  bool holds_prompt = false;        // in the ledger of deaths
  std::optional<ApiError> refused;  // reported by the timer, never inside Start

 private:
  mutable std::optional<PromptKey> prompt_;
};

}  // namespace quire
