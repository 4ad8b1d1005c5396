// A request's beam search as the engine keeps it: the search, and a row for each beam.
//
// Owner: the request. Invariants:
// 1. Beams are not choices of the request: its choices are the answers, which are sent when the
//    search is over.
// 2. A beam samples once in a round, which ends when all beams have. The beams of the next round
//    share the blocks of those that they come from.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "worker/engine/request_table.h"
#include "worker/sample/beam_search.h"

namespace quire {

struct Beams {
  explicit Beams(BeamSearchOptions options) : search(std::move(options)) {}

  BeamSearch search;
  SamplingParams sampling;        // for every beam: its best tokens, nothing else
  std::vector<OwnedChoice> rows;  // the beams, in the search's order
  std::vector<BeamRow> results;   // of this round, by beam
  size_t results_missing = 0;
  // The beams of the previous round: the step that is being committed may still name them.
  std::vector<OwnedChoice> last_rows;
  AttemptUsage usage;        // of rows that have left, and of all tokens
  int64_t told_tokens = 0;   // of the answers
  uint32_t preemptions = 0;  // of rows that have left
  bool stopped = false;
};

// Why a request cannot have a beam search, by the parameter's name.
struct BeamProblem {
  std::string_view field;
  std::string_view message;
};
std::optional<BeamProblem> CheckBeams(const SamplingParams& params, size_t choices, size_t end_ids);

}  // namespace quire
