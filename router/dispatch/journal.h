// What has been accepted of every choice of a request: the exactly-once check, and the state from
// which the next attempt resumes.
//
// Owner: one request of the dispatcher, on the router's executor.
//  1. Outputs of a choice are accepted in order of index, each index once.
//  2. A choice that has ended accepts nothing.
//  3. Logprobs of the prompt are accepted in order of position, each once, and before any output.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "common/wire/values.h"

namespace quire {

enum class Verdict : uint8_t {
  kAccepted,
  kEnded,      // the choice is over: late outputs, to be dropped
  kDuplicate,  // begins below the accepted outputs: to be dropped
  kGap,        // begins above it: tokens are missing, the attempt is broken
  kOverrun,    // more than the window or max_tokens allows: the attempt is broken
  kNoChoice,   // the request has no such choice: the attempt is broken
};

class Journal {
 public:
  // `choices`: where the first attempt starts from; `max_tokens` bounds each choice.
  Journal(std::vector<ResumedChoice> choices, uint64_t max_tokens);

  // This many positions of the prompt are reported, from position 1 on.
  void ExpectPrompt(uint32_t positions) { prompt_expected_ = positions; }
  // How many of `count` positions from `first` on are known already; the others are accepted now.
  // Empty when they leave a gap or go beyond the prompt: the attempt is broken.
  std::optional<uint32_t> AcceptPrompt(uint32_t first, uint32_t count);
  bool PromptComplete() const { return prompt_accepted_ == prompt_expected_; }

  // Accepts all of `ids` or none. `granted` is the index that the worker must not reach; 0: no
  // bound.
  Verdict Accept(uint32_t choice, uint64_t first_index, std::span<const TokenId> ids,
                 uint64_t granted);
  // The choice is over; its outputs from `output_count` on are forgotten.
  void End(uint32_t choice, uint64_t output_count);

  size_t choice_count() const { return choices_.size(); }
  uint64_t accepted(uint32_t choice) const;
  bool ended(uint32_t choice) const;
  bool AllEnded() const;
  // True once this router has accepted an output; outputs that a client brought along do not count.
  bool AnyAccepted() const { return any_accepted_; }
  uint64_t TotalOutputs() const;
  const std::vector<ResumedChoice>& choices() const { return choices_; }

 private:
  std::vector<ResumedChoice> choices_;
  uint64_t max_tokens_;
  bool any_accepted_ = false;
  uint32_t prompt_expected_ = 0;
  uint32_t prompt_accepted_ = 0;
};

}  // namespace quire
