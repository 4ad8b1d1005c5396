#include "router/stream/choice_stream.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "common/check.h"
#include "common/planted_bug.h"
#include "router/core/utf8.h"

namespace quire {
namespace {

// JSON knows no infinity: a logprob that a worker reports as impossible is shown as vLLM shows it.
float ShownLogprob(float logprob) {
  constexpr float kLowest = -9999.0f;
  return std::isfinite(logprob) ? std::max(logprob, kLowest) : kLowest;
}

}  // namespace

TokenLogprob MakeTokenLogprob(const ModelText& text, TokenId id, float logprob) {
  TokenLogprob entry;
  entry.id = id;
  entry.bytes = std::string(text.TokenBytes(id));
  entry.token = ValidUtf8(entry.bytes);
  entry.logprob = ShownLogprob(logprob);
  return entry;
}

std::vector<TokenLogprob> MakeTopLogprobs(const ModelText& text, const TopLogprobs& top) {
  std::vector<TokenLogprob> entries;
  entries.reserve(top.ids.size());
  for (size_t i = 0; i < top.ids.size(); ++i) {
    entries.push_back(MakeTokenLogprob(text, top.ids[i], top.logprobs[i]));
  }
  return entries;
}

ChoiceStream::ChoiceStream(std::shared_ptr<const ChoiceStreamOptions> options, uint32_t choice,
                           const ModelText& text)
    : options_(std::move(options)), choice_(choice), text_(text), matcher_(options_->stop) {
  if (options_->want_text || !options_->stop.empty()) {
    decoder_ = text_.NewDecoder(options_->skip_special_tokens);
  }
}

Delta ChoiceStream::Append(const Output& output) {
  QUIRE_CHECK_MSG(!finished_ && !stop_string_, "a choice that has ended takes nothing");
  QUIRE_CHECK_MSG(output.first_index == count_, "outputs come in order, each once");
  Delta delta;
  delta.choice = choice_;
  delta.first_index = count_;
  for (size_t i = 0; i < output.ids.size(); ++i) {
    delta.ids.push_back(output.ids[i]);
    if (!output.logprobs.empty()) delta.logprobs.push_back(LogprobOf(output, i));
    if (AppendToken(output.ids[i], delta.text)) break;
  }
  text_bytes_ += delta.text.size();
  return delta;
}

Delta ChoiceStream::Finish() {
  QUIRE_CHECK_MSG(!finished_ && !stop_string_, "a choice ends once");
  finished_ = true;
  Delta delta;
  delta.choice = choice_;
  delta.first_index = count_;
  if (decoder_ != nullptr && !AppendText(decoder_->Flush(), delta.text)) {
    if (options_->want_text) delta.text += held_;
    held_.clear();
  }
  text_bytes_ += delta.text.size();
  return delta;
}

void ChoiceStream::Replay(std::span<const TokenId> ids) {
  std::string shown;
  for (const TokenId id : ids) {
    if (AppendToken(id, shown)) break;
  }
  if (QUIRE_BUG(text_at_the_seam_lost) && decoder_ != nullptr) decoder_->Flush();
}

bool ChoiceStream::AppendToken(TokenId id, std::string& out) {
  ++count_;
  if (decoder_ == nullptr) return false;
  const bool ends = count_ > options_->min_tokens && options_->stop_token_ids.contains(id);
  if (ends && !options_->include_stop_str_in_output) return false;
  return AppendText(decoder_->Append(std::span(&id, 1)), out);
}

bool ChoiceStream::AppendText(std::string_view piece, std::string& out) {
  const bool may_stop = count_ > options_->min_tokens && !options_->stop.empty();
  if (!may_stop) {
    if (options_->want_text) out += piece;
    return false;
  }
  const StopMatcher::Found found = matcher_.Feed(piece);
  held_.append(piece.substr(0, found.used));
  if (found.string < 0) {
    const size_t shown = held_.size() - matcher_.HeldBytes();
    if (options_->want_text) out.append(held_, 0, shown);
    held_.erase(0, shown);
    return false;
  }
  const std::string& stop = options_->stop.string(found.string);
  QUIRE_CHECK_MSG(held_.size() >= stop.size(), "a match lies within what was held back");
  const size_t shown =
      options_->include_stop_str_in_output ? held_.size() : held_.size() - stop.size();
  if (options_->want_text) out.append(held_, 0, shown);
  held_.clear();
  stop_string_ = stop;
  return true;
}

TokenLogprob ChoiceStream::LogprobOf(const Output& output, size_t index) const {
  TokenLogprob entry = MakeTokenLogprob(text_, output.ids[index], output.logprobs[index]);
  entry.hidden = options_->skip_special_tokens && text_.IsSpecial(entry.id);
  if (!output.top.empty()) entry.top = MakeTopLogprobs(text_, output.top[index]);
  return entry;
}

}  // namespace quire
