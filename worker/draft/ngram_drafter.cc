#include "worker/draft/ngram_drafter.h"

#include <algorithm>
#include <bit>

#include "common/check.h"

namespace quire {
namespace {

constexpr size_t kMinHeads = 64;

}  // namespace

NgramDrafter::NgramDrafter(const NgramOptions& options) : options_(options) {
  QUIRE_CHECK(options.min_tokens >= 1 && options.min_tokens <= options.max_tokens);
  QUIRE_CHECK(options.max_tokens <= kMaxLookupTokens);
}

void NgramDrafter::Propose(std::span<const DraftRow> rows) {
  ++round_;
  for (const DraftRow& row : rows) {
    const auto found = texts_.find(row.sequence);
    if (found != texts_.end()) found->second.round = round_;
  }
  for (const DraftRow& row : rows) {
    const auto found = texts_.find(row.sequence);
    const size_t held = found == texts_.end() ? 0 : found->second.tokens.size();
    const size_t begin = found != texts_.end()    ? found->second.row_begin
                         : row.prediction.empty() ? 0
                                                  : row.prediction.size() + 1;
    QUIRE_CHECK(held <= begin + row.tokens.size());
    if (!MakeRoom(begin + row.tokens.size() - held)) {
      Forget(row.sequence);
      continue;
    }
    Text& text = texts_[row.sequence];
    Read(row, text);
    Draft(row, text);
  }
}

// Whether so many tokens more fit, where texts that no row of this call has give way.
bool NgramDrafter::MakeRoom(size_t tokens) {
  while (held_tokens_ + tokens > options_.most_tokens) {
    auto oldest = texts_.end();
    for (auto at = texts_.begin(); at != texts_.end(); ++at) {
      const bool before = oldest == texts_.end() || at->second.round < oldest->second.round;
      if (at->second.round < round_ && before) oldest = at;
    }
    if (oldest == texts_.end()) return false;
    held_tokens_ -= oldest->second.tokens.size();
    texts_.erase(oldest);
    ++evictions_;
  }
  return true;
}

// What the row has become since its text was read.
void NgramDrafter::Read(const DraftRow& row, Text& text) {
  const size_t before = text.tokens.size();
  text.round = round_;
  if (before == 0 && !row.prediction.empty()) {
    Append(text, row.prediction);
    const TokenId gap = kGap;
    Append(text, {&gap, 1});
    text.row_begin = text.tokens.size();
  }
  Append(text, row.tokens.subspan(text.tokens.size() - text.row_begin));
  held_tokens_ += text.tokens.size() - before;
}

void NgramDrafter::Forget(uint64_t sequence) {
  const auto found = texts_.find(sequence);
  if (found == texts_.end()) return;
  held_tokens_ -= found->second.tokens.size();
  texts_.erase(found);
}

// Of the min_tokens tokens that end at `place`.
uint32_t NgramDrafter::Hash(const Text& text, size_t place) const {
  uint64_t hash = 0;
  for (int32_t i = 0; i < options_.min_tokens; ++i) {
    const uint64_t token = static_cast<uint32_t>(text.tokens[place - static_cast<size_t>(i)]);
    hash = (hash ^ token) * 0x9E3779B97F4A7C15ull;
  }
  return static_cast<uint32_t>(hash >> 32) & static_cast<uint32_t>(text.heads.size() - 1);
}

void NgramDrafter::Append(Text& text, std::span<const TokenId> tokens) const {
  const size_t first = text.tokens.size();
  text.tokens.insert(text.tokens.end(), tokens.begin(), tokens.end());
  text.previous.resize(text.tokens.size(), -1);
  size_t place = first;
  if (text.heads.size() < text.tokens.size()) {
    // Twice as many, and all places once more: a token costs the same on average.
    text.heads.assign(std::max(kMinHeads, std::bit_ceil(2 * text.tokens.size())), -1);
    place = 0;
  }
  for (; place < text.tokens.size(); ++place) Link(text, place);
}

void NgramDrafter::Link(Text& text, size_t place) const {
  if (place + 1 < static_cast<size_t>(options_.min_tokens)) return;
  int32_t& head = text.heads[Hash(text, place)];
  text.previous[place] = head;
  head = static_cast<int32_t>(place);
}

// The place, before the text's end, where the same tokens end.
NgramDrafter::Match NgramDrafter::FindPlace(const Text& text) const {
  const size_t end = text.tokens.size();
  if (end < static_cast<size_t>(options_.min_tokens)) return {};
  Match best{-1, options_.min_tokens - 1};
  int32_t at = text.previous[end - 1];
  for (int looked = 0; at >= 0 && looked < kMaxCandidates; ++looked) {
    const int32_t most = std::min(options_.max_tokens, at + 1);
    int32_t same = 0;
    while (same < most && text.tokens[static_cast<size_t>(at - same)] ==
                              text.tokens[end - 1 - static_cast<size_t>(same)]) {
      ++same;
    }
    if (same > best.tokens) best = {at, same};
    if (best.tokens == options_.max_tokens) break;
    at = text.previous[static_cast<size_t>(at)];
  }
  return best;
}

// What follows that place; where it reaches the end of the text, the draft repeats itself. While
// all outputs are the prediction's, the draft is what comes next in it.
void NgramDrafter::Draft(const DraftRow& row, Text& text) const {
  const std::span<const TokenId> outputs =
      row.tokens.subspan(static_cast<size_t>(row.prompt_length));
  while (text.predicted < std::min(outputs.size(), row.prediction.size()) &&
         outputs[text.predicted] == row.prediction[text.predicted]) {
    ++text.predicted;
  }
  size_t next = 0;
  int32_t most = row.wanted;
  if (text.predicted == outputs.size() && text.predicted < row.prediction.size()) {
    next = text.predicted;
  } else {
    const Match match = FindPlace(text);
    if (match.place < 0) return;
    next = static_cast<size_t>(match.place) + 1;
    if (match.tokens < options_.max_tokens) most = std::min(most, match.tokens);
  }
  const size_t end = text.tokens.size();
  for (int32_t i = 0; i < most; ++i, ++next) {
    const TokenId token = next < end ? text.tokens[next] : (*row.drafts)[next - end];
    if (token == kGap) return;
    row.drafts->push_back(token);
  }
}

}  // namespace quire
