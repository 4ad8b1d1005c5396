// What --speculative-config says: who drafts, and how many tokens. The JSON is vLLM's.
//
// A value. Each way of drafting is a line of the table in speculation.cc: its name, its keys, and
// who makes it.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "common/status.h"
#include "worker/draft/drafter.h"
#include "worker/draft/model_drafter.h"
#include "worker/draft/ngram_drafter.h"

namespace quire {

// A head that reads the target's hidden states.
enum class HeadMethod : uint8_t { kNone, kMedusa, kEagle3, kMtp };

struct Speculation {
  std::string method;                  // empty: nothing is drafted
  int32_t num_speculative_tokens = 0;  // at most, for a row in a step
  NgramOptions ngram;
  std::string model;  // of a second model that drafts: folder or .gguf; empty: there is none
  std::vector<int> skipped_layers;  // the model without them drafts; empty: it does not

  HeadMethod head = HeadMethod::kNone;  // `model` is its folder; of kMtp there is none

  bool HasModel() const { return !HasHead() && (!model.empty() || !skipped_layers.empty()); }
  bool HasHead() const { return head != HeadMethod::kNone; }
};

// INVALID_ARGUMENT names the key, and values that work. An empty text means no speculation.
absl::StatusOr<Speculation> ParseSpeculation(std::string_view text);

// A second model, loaded, as a drafter needs it; or what drafts with a head.
struct DraftRunner {
  ModelDrafterOptions options;
  Runner* runner = nullptr;       // outlives the drafter
  std::unique_ptr<Drafter> head;  // the runner of the target knows it
};

// Null where nothing is drafted. `second`: where speculation.HasModel() or HasHead().
std::unique_ptr<Drafter> MakeDrafter(const Speculation& speculation, DraftRunner second = {});

}  // namespace quire
