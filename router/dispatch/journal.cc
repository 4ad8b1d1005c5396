#include "router/dispatch/journal.h"

#include <algorithm>

#include "common/check.h"

namespace quire {

Journal::Journal(std::vector<ResumedChoice> choices, uint64_t max_tokens)
    : choices_(std::move(choices)), max_tokens_(max_tokens) {
  QUIRE_CHECK_MSG(!choices_.empty(), "a request has at least one choice");
  QUIRE_CHECK(choices_.size() <= kMaxChoices);
}

Verdict Journal::Accept(uint32_t choice, uint64_t first_index, std::span<const TokenId> ids,
                        uint64_t granted) {
  if (choice >= choices_.size()) return Verdict::kNoChoice;
  ResumedChoice& entry = choices_[choice];
  if (entry.ended) return Verdict::kEnded;
  const uint64_t accepted = entry.outputs.size();
  if (first_index < accepted) return Verdict::kDuplicate;
  if (first_index > accepted) return Verdict::kGap;
  const uint64_t after = accepted + ids.size();
  if (after > max_tokens_ || (granted != 0 && after > granted)) return Verdict::kOverrun;
  entry.outputs.insert(entry.outputs.end(), ids.begin(), ids.end());
  any_accepted_ = any_accepted_ || !ids.empty();
  QUIRE_CHECK(entry.outputs.size() == after);
  return Verdict::kAccepted;
}

std::optional<uint32_t> Journal::AcceptPrompt(uint32_t first, uint32_t count) {
  const uint64_t next = uint64_t{prompt_accepted_} + 1;
  const uint64_t end = uint64_t{first} + count;
  if (first < 1 || first > next || end > uint64_t{prompt_expected_} + 1) return std::nullopt;
  const uint64_t known = std::min<uint64_t>(next - first, count);
  prompt_accepted_ = static_cast<uint32_t>(std::max(end, next) - 1);
  QUIRE_CHECK(prompt_accepted_ <= prompt_expected_);
  return static_cast<uint32_t>(known);
}

void Journal::End(uint32_t choice, uint64_t output_count) {
  QUIRE_CHECK(choice < choices_.size());
  ResumedChoice& entry = choices_[choice];
  QUIRE_CHECK_MSG(!entry.ended, "a choice ends once");
  QUIRE_CHECK_MSG(output_count <= entry.outputs.size(), "a choice ends within what was accepted");
  entry.outputs.resize(output_count);
  entry.ended = true;
}

uint64_t Journal::accepted(uint32_t choice) const {
  QUIRE_CHECK(choice < choices_.size());
  return choices_[choice].outputs.size();
}

bool Journal::ended(uint32_t choice) const {
  QUIRE_CHECK(choice < choices_.size());
  return choices_[choice].ended;
}

bool Journal::AllEnded() const {
  return std::all_of(choices_.begin(), choices_.end(),
                     [](const ResumedChoice& choice) { return choice.ended; });
}

uint64_t Journal::TotalOutputs() const {
  uint64_t total = 0;
  for (const ResumedChoice& choice : choices_) total += choice.outputs.size();
  return total;
}

}  // namespace quire
