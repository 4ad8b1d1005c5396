#include "router/stream/choice_stream.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "common/check.h"
#include "common/planted_bug.h"
#include "common/utf8.h"

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
  QUIRE_CHECK(!options_->reading || options_->format != nullptr);
  if (options_->reading) reader_ = std::make_unique<AnswerReader>(*options_->reading, choice);
  if (options_->want_text || !options_->stop.empty() || reader_ != nullptr) {
    decoder_ = text_.NewDecoder(options_->skip_special_tokens);
  }
}

Deltas ChoiceStream::NewDeltas() const {
  Deltas deltas(1);
  deltas[0].choice = choice_;
  deltas[0].first_index = count_;
  return deltas;
}

Deltas ChoiceStream::Append(const Output& output) {
  QUIRE_CHECK_MSG(!finished_ && !complete(), "a choice that has ended takes nothing");
  QUIRE_CHECK_MSG(output.first_index == count_, "outputs come in order, each once");
  Deltas deltas = NewDeltas();
  for (size_t i = 0; i < output.ids.size(); ++i) {
    const bool over = AppendToken(output.ids[i], deltas);
    deltas.back().ids.push_back(output.ids[i]);
    if (!output.logprobs.empty()) deltas.back().logprobs.push_back(LogprobOf(output, i));
    if (over) break;
  }
  return deltas;
}

Deltas ChoiceStream::Finish() {
  QUIRE_CHECK_MSG(!finished_ && !complete(), "a choice ends once");
  finished_ = true;
  Deltas deltas = NewDeltas();
  if (decoder_ != nullptr && !AppendText(decoder_->Flush(), deltas)) {
    Release(held_.size(), deltas);
    EndReading(deltas);
  }
  return deltas;
}

void ChoiceStream::Replay(std::span<const TokenId> ids) {
  for (const TokenId id : ids) {
    Deltas shown(1);  // the client has it
    if (AppendToken(id, shown)) break;
  }
  text_bytes_ = 0;
  if (QUIRE_BUG(text_at_the_seam_lost) && decoder_ != nullptr) decoder_->Flush();
}

bool ChoiceStream::AppendToken(TokenId id, Deltas& out) {
  ++count_;
  if (decoder_ == nullptr) return false;
  const bool may_end = options_->constrained || count_ > options_->min_tokens;
  const bool ends = may_end && options_->stop_token_ids.contains(id);
  const bool silent = ends && !options_->include_stop_str_in_output;
  bool over = false;
  if (reader_ != nullptr && (text_.IsSpecial(id) || options_->format->IsMark(id))) {
    over = AppendMark(id, silent, out);
  } else if (!silent) {
    over = AppendText(decoder_->Append(std::span(&id, 1)), out);
  }
  if (reader_ == nullptr) return over;
  if (reader_->in_thought()) ++reasoning_;
  return over || reader_->complete();
}

// Its own text is not text to the reader; stop strings see it unless it is skipped.
bool ChoiceStream::AppendMark(TokenId id, bool silent, Deltas& out) {
  const std::string text = silent ? "" : decoder_->Append(std::span(&id, 1));
  const std::string own = ValidUtf8(text_.TokenBytes(id));
  const bool skipped = !text.ends_with(own);
  if (skipped) {
    if (AppendText(text, out)) return true;
    if (held_.empty()) {
      ShowToken(id, true, out);
    } else {
      held_tokens_.push_back({held_.size(), 0, id});
    }
    return false;
  }
  if (AppendText(std::string_view(text).substr(0, text.size() - own.size()), out)) return true;
  const bool may_stop = count_ > options_->min_tokens && !options_->stop.empty();
  if (!may_stop) {
    ShowToken(id, false, out);
    return false;
  }
  held_tokens_.push_back({held_.size(), own.size(), id});
  return AppendText(own, out);
}

bool ChoiceStream::AppendText(std::string_view piece, Deltas& out) {
  const bool may_stop = count_ > options_->min_tokens && !options_->stop.empty();
  if (!may_stop) {
    ShowText(piece, out);
    return false;
  }
  const StopMatcher::Found found = matcher_.Feed(piece);
  held_.append(piece.substr(0, found.used));
  if (found.string < 0) {
    Release(held_.size() - matcher_.HeldBytes(), out);
    return false;
  }
  const std::string& stop = options_->stop.string(found.string);
  QUIRE_CHECK_MSG(held_.size() >= stop.size(), "a match lies within what was held back");
  Release(options_->include_stop_str_in_output ? held_.size() : held_.size() - stop.size(), out);
  held_.clear();
  held_tokens_.clear();
  if (reader_ != nullptr) cut_in_call_ = reader_->in_call();
  EndReading(out);
  stop_string_ = stop;
  return true;
}

void ChoiceStream::Release(size_t size, Deltas& out) {
  const std::string_view held = held_;
  size_t at = 0;  // shown so far
  size_t tokens = 0;
  for (const HeldToken& token : held_tokens_) {
    if (token.at + token.size > size) {
      size = std::min(size, token.at);
      break;
    }
    ShowText(held.substr(at, token.at - at), out);
    ShowToken(token.id, token.size == 0, out);
    at = token.at + token.size;
    ++tokens;
  }
  ShowText(held.substr(at, size - at), out);
  held_.erase(0, size);
  held_tokens_.erase(held_tokens_.begin(), held_tokens_.begin() + static_cast<ptrdiff_t>(tokens));
  for (HeldToken& token : held_tokens_) token.at -= size;
}

void ChoiceStream::ShowText(std::string_view text, Deltas& out) {
  if (text.empty() || (reader_ == nullptr && !options_->want_text)) return;
  text_bytes_ += text.size();
  if (reader_ != nullptr) {
    reader_->Text(text, out);
  } else {
    out.back().text += text;
  }
}

// A special token that is no mark is content where special tokens are shown.
void ChoiceStream::ShowToken(TokenId id, bool skipped, Deltas& out) {
  const std::string own = ValidUtf8(text_.TokenBytes(id));
  if (!skipped && !options_->format->IsMark(id)) return ShowText(own, out);
  reader_->Special(own, out);
}

void ChoiceStream::EndReading(Deltas& out) {
  if (reader_ != nullptr) reader_->Finish(out);
}

TokenLogprob ChoiceStream::LogprobOf(const Output& output, size_t index) const {
  TokenLogprob entry = MakeTokenLogprob(text_, output.ids[index], output.logprobs[index]);
  entry.hidden = options_->skip_special_tokens && text_.IsSpecial(entry.id);
  if (!output.top.empty()) entry.top = MakeTopLogprobs(text_, output.top[index]);
  return entry;
}

}  // namespace quire
