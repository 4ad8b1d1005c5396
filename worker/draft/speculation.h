// What --speculative-config says: who drafts, and how many tokens. The JSON is vLLM's.
//
// A value. Each way of drafting is a line of the table in speculation.cc: its name, its keys, and
// who makes it.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "common/status.h"
#include "worker/draft/drafter.h"
#include "worker/draft/ngram_drafter.h"

namespace quire {

struct Speculation {
  std::string method;                  // empty: nothing is drafted
  int32_t num_speculative_tokens = 0;  // at most, for a row in a step
  NgramOptions ngram;
};

// INVALID_ARGUMENT names the key, and values that work. An empty text means no speculation.
absl::StatusOr<Speculation> ParseSpeculation(std::string_view text);

// Null where nothing is drafted.
std::unique_ptr<Drafter> MakeDrafter(const Speculation& speculation);

}  // namespace quire
