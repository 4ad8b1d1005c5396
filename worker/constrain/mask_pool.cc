#include "worker/constrain/mask_pool.h"

#include <pthread.h>

#include <algorithm>
#include <bit>
#include <mutex>
#include <optional>
#include <utility>

#include "common/check.h"
#include "common/planted_bug.h"
#include "common/status.h"
#include "worker/constrain/mask_series.h"
#include "worker/constrain/thought.h"
#include "worker/core/step_plan.h"

namespace quire {
namespace {

double Seconds(int64_t micros) { return static_cast<double>(micros) / 1e6; }

}  // namespace

struct MaskPool::Text {
  explicit Text(std::atomic<size_t>& all_bytes) : all(all_bytes) {}
  ~Text() { all.fetch_sub(bytes, std::memory_order_relaxed); }

  std::atomic<size_t>& all;
  std::shared_ptr<const grammar::Grammar> grammar;  // null: any text
  std::unique_ptr<grammar::Matcher> matcher;
  std::optional<Thought> thought;
  std::vector<TokenId> tokens;  // that the matcher has not accepted yet
  std::vector<TokenId> drafts;  // of the last step, and of the next one where has_drafts
  bool has_drafts = false;
  bool ahead = false;          // they were Ahead()'s
  std::vector<uint32_t> bits;  // of 1 and as many masks as there are drafts
  size_t masks = 0;            // of these, those that hold; the others are zero
  size_t followed = 0;         // leading drafts that the matcher has accepted
  size_t taken = 0;            // of these, those that have turned out to be the text's tokens
  bool astray = false;
  std::vector<TokenId> forced;  // what has to follow the matcher's tokens
  size_t forced_taken = 0;      // of these, in `tokens`
  TextState state = TextState::kGoesOn;
  std::string why;
  bool failed = false;              // whatever the drafts: it stays so
  size_t bytes = 0;                 // of the matcher, as counted in `all`
  std::atomic<int64_t> mask_us{0};  // that its masks have taken
  std::atomic<Stage> stage{Stage::kReady};
  bool queued = false;  // guarded by the pool's mutex

  // The engine may read and change it: no thread works on it, or will before it is sent.
  bool IsEngines() const {
    const Stage now = stage.load(std::memory_order_acquire);
    return now == Stage::kReady || now == Stage::kHeld;
  }
  void Fail(const absl::Status& status) {
    state = TextState::kFailed;
    why = StatusMessage(status);
    if (!why.starts_with("constraint: ")) why = "constraint: " + why;
  }
};

MaskPool::MaskPool(const MaskPoolOptions& options)
    : options_(options), words_((static_cast<size_t>(options.vocab_size) + 31) / 32) {
  QUIRE_CHECK(options_.threads >= 0 && options_.vocab_size > 0);
  if (options_.metrics != nullptr) series_ = std::make_unique<Series>(*options_.metrics);
  for (int i = 0; i < options_.threads; ++i) threads_.emplace_back([this, i] { Run(i); });
}

MaskPool::~MaskPool() {
  {
    MutexLock lock(mutex_);
    stopping_ = true;
  }
  wake_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

MaskPool::Text& MaskPool::Find(uint64_t sequence) const {
  const auto found = texts_.find(sequence);
  QUIRE_CHECK_MSG(found != texts_.end(), "a sequence has no text");
  return *found->second;
}

void MaskPool::Begin(uint64_t sequence, TextRules rules, std::span<const TokenId> outputs) {
  QUIRE_CHECK(rules.grammar != nullptr || rules.thoughts != nullptr);
  auto text = std::make_shared<Text>(bytes_);
  text->grammar = std::move(rules.grammar);
  if (rules.thoughts != nullptr) text->thought.emplace(std::move(rules.thoughts));
  text->bits.resize(words_);
  if (!QUIRE_BUG(constraint_forgets_resumed_outputs)) {
    text->tokens.assign(outputs.begin(), outputs.end());
  }
  text->tokens.reserve(1);
  if (QUIRE_BUG(forks_share_a_constraint)) {
    for (const auto& [other, shared] : texts_) {
      if (shared->grammar == text->grammar) text = shared;
    }
  }
  Hold(text);
  const bool added = texts_.emplace(sequence, std::move(text)).second;
  QUIRE_CHECK_MSG(added, "a sequence begins two texts");
  {
    MutexLock lock(mutex_);
    if (queue_.capacity() < 2 * texts_.size()) queue_.reserve(4 * texts_.size());
  }
  if (series_ != nullptr) series_->texts.Set(static_cast<double>(texts_.size()));
}

void MaskPool::Accept(uint64_t sequence, TokenId token) {
  const auto found = texts_.find(sequence);
  QUIRE_CHECK_MSG(found != texts_.end(), "a sequence has no text");
  Text& text = *found->second;
  QUIRE_CHECK(text.IsEngines() || QUIRE_BUG(forks_share_a_constraint));
  if (text.taken < text.followed) {
    if (token == text.drafts[text.taken]) {
      ++text.taken;
    } else {
      text.astray = true;
    }
    return;
  }
  text.tokens.push_back(token);
  const bool expected =
      text.forced_taken < text.forced.size() && text.forced[text.forced_taken] == token;
  text.forced_taken = expected ? text.forced_taken + 1 : text.forced.size();
  Hold(found->second);
}

void MaskPool::Hold(const std::shared_ptr<Text>& text) {
  if (text->stage.load(std::memory_order_relaxed) == Stage::kHeld) return;
  text->stage.store(Stage::kHeld, std::memory_order_release);
  batch_.push_back(text);
}

std::span<const TokenId> MaskPool::Ahead(uint64_t sequence) const {
  const auto found = texts_.find(sequence);
  if (found == texts_.end() || !found->second->IsEngines()) return {};
  const Text& text = *found->second;
  if (text.thought || text.astray || text.taken < text.followed) return {};
  return std::span(text.forced).subspan(text.forced_taken);
}

void MaskPool::Draft(uint64_t sequence, std::span<const TokenId> drafts, bool ahead) {
  const auto found = texts_.find(sequence);
  QUIRE_CHECK_MSG(found != texts_.end() && !drafts.empty(), "a sequence has no text");
  Text& text = *found->second;
  QUIRE_CHECK(text.grammar != nullptr && !text.thought);
  if (!text.IsEngines()) Await(text);
  text.drafts.assign(drafts.begin(), drafts.end());
  text.has_drafts = true;
  text.ahead = ahead;
  text.followed = text.taken = 0;
  Hold(found->second);
}

void MaskPool::EndStep(bool all_may_have_drafts) {
  if (series_ != nullptr) {
    const int64_t worked_us = worked_us_.exchange(0, std::memory_order_relaxed);
    if (worked_us > 0) series_->step.Observe(Seconds(worked_us));
    if (worked_us > 0) series_->wait.Observe(Seconds(waited_us_));
    waited_us_ = 0;
    series_->bytes.Set(static_cast<double>(bytes()));
  }
  if (all_may_have_drafts) return;
  const auto plain = std::partition(batch_.begin(), batch_.end(), [](const auto& text) {
    return text->forced_taken < text->forced.size();
  });
  Hand(std::span(plain, batch_.end()));
  batch_.erase(plain, batch_.end());
}

void MaskPool::Send() {
  if (batch_.empty()) return;
  Hand(batch_);
  batch_.clear();
}

// Those that have gone, or that MaskOf has worked on, are handed on too: a thread frees them.
void MaskPool::Hand(std::span<std::shared_ptr<Text>> texts) {
  if (texts.empty()) return;
  const auto let_go = [](Text& text) {
    Stage held = Stage::kHeld;
    text.stage.compare_exchange_strong(held, Stage::kWaits, std::memory_order_acq_rel);
  };
  for (const std::shared_ptr<Text>& text : texts) let_go(*text);
  if (threads_.empty()) return;
  {
    MutexLock lock(mutex_);
    for (std::shared_ptr<Text>& text : texts) Enqueue(std::move(text));
  }
  for (size_t i = 0; i < std::min(texts.size(), threads_.size()); ++i) wake_.notify_one();
}

// A text is there once, however often it is handed on before a thread takes it, so that threads
// which are held up leave no longer queue than there are texts.
void MaskPool::Enqueue(std::shared_ptr<Text> text) {
  if (std::exchange(text->queued, true)) return;
  if (queue_.size() == queue_.capacity()) {
    queue_.erase(queue_.begin(), queue_.begin() + static_cast<ptrdiff_t>(next_));
    next_ = 0;
  }
  queue_.push_back(std::move(text));
}

TextState MaskPool::Look(uint64_t sequence) const {
  const Text& text = Find(sequence);
  QUIRE_CHECK_MSG(text.IsEngines(), "a mask has not been used");
  return text.state;
}

size_t MaskPool::Masks(uint64_t sequence) const {
  const Text& text = Find(sequence);
  QUIRE_CHECK_MSG(text.IsEngines(), "a mask has not been used");
  return text.masks;
}

bool MaskPool::Astray(uint64_t sequence) const {
  const Text& text = Find(sequence);
  return text.astray || text.taken < text.followed;
}

const std::string& MaskPool::WhyFailed(uint64_t sequence) const { return Find(sequence).why; }

int64_t MaskPool::MaskMicros(uint64_t sequence) const {
  return Find(sequence).mask_us.load(std::memory_order_relaxed);
}

// The threads free it: its states may be large.
void MaskPool::End(uint64_t sequence) {
  const auto found = texts_.find(sequence);
  QUIRE_CHECK_MSG(found != texts_.end(), "a sequence has no text");
  std::shared_ptr<Text> text = std::move(found->second);
  texts_.erase(found);
  Stage waits = Stage::kWaits;
  if (!QUIRE_BUG(forks_share_a_constraint)) {
    Stage held = Stage::kHeld;
    if (text->stage.compare_exchange_strong(held, Stage::kGone, std::memory_order_acq_rel)) {
      std::erase(batch_, text);
    }
    text->stage.compare_exchange_strong(waits, Stage::kGone, std::memory_order_acq_rel);
  }
  if (series_ != nullptr) series_->texts.Set(static_cast<double>(texts_.size()));
  if (threads_.empty()) return;
  {
    MutexLock lock(mutex_);
    Enqueue(std::move(text));
  }
  wake_.notify_one();
}

std::span<const uint32_t> MaskPool::MaskOf(uint64_t sequence, size_t drafts) {
  const auto found = texts_.find(sequence);
  if (found == texts_.end()) return {};  // it has ended since the step was launched
  Text& text = *found->second;
  if (text.stage.load(std::memory_order_acquire) != Stage::kReady) Await(text);
  QUIRE_CHECK(drafts <= text.drafts.size() || QUIRE_BUG(forks_share_a_constraint));
  return Bits(text, std::min(drafts, text.drafts.size()));
}

// Until its masks are there.
void MaskPool::Await(Text& text) {
  const int64_t begin_us = Now();
  Stage held = Stage::kHeld;
  text.stage.compare_exchange_strong(held, Stage::kWaits, std::memory_order_acq_rel);
  if (Claim(text)) Work(text);
  Stage stage = text.stage.load(std::memory_order_acquire);
  while (stage == Stage::kBusy) {
    text.stage.wait(stage, std::memory_order_acquire);
    stage = text.stage.load(std::memory_order_acquire);
  }
  QUIRE_CHECK(stage == Stage::kReady);
  waited_us_ += Now() - begin_us;
}

std::span<uint32_t> MaskPool::Bits(Text& text, size_t index) const {
  return std::span(text.bits).subspan(index * words_, words_);
}

bool MaskPool::Claim(Text& text) const {
  Stage waits = Stage::kWaits;
  return text.stage.compare_exchange_strong(waits, Stage::kBusy, std::memory_order_acq_rel);
}

void MaskPool::Work(Text& text) {
  const int64_t begin_us = Now();
  if (!std::exchange(text.has_drafts, false)) text.drafts.clear();
  if (text.bits.size() != (1 + text.drafts.size()) * words_) {
    if (text.drafts.empty()) text.bits = {};  // drafts leave nothing behind
    text.bits.resize((1 + text.drafts.size()) * words_);
  }
  text.masks = text.followed = text.taken = 0;
  KeepForced(text);
  if (!text.failed) {
    text.state = TextState::kGoesOn;
    const absl::Status status = Advance(text);
    text.failed = !status.ok();
    if (text.failed) text.Fail(status);
  }
  if (text.state != TextState::kGoesOn) text.forced.clear();
  const std::span<uint32_t> rest = std::span(text.bits).subspan(text.masks * words_);
  std::fill(rest.begin(), rest.end(), 0);
  text.tokens.clear();
  const int64_t took_us = Now() - begin_us;
  text.mask_us.fetch_add(took_us, std::memory_order_relaxed);
  if (series_ != nullptr) {
    series_->mask.Observe(Seconds(took_us));
    worked_us_.fetch_add(std::max<int64_t>(1, took_us), std::memory_order_relaxed);
  }
  text.stage.store(Stage::kReady, std::memory_order_release);
  text.stage.notify_all();
}

// What had to follow still has to where the text has taken only some of it.
void MaskPool::KeepForced(Text& text) {
  const size_t gone = text.drafts.empty() ? text.forced_taken : text.forced.size();
  text.forced.erase(text.forced.begin(), text.forced.begin() + static_cast<ptrdiff_t>(gone));
  text.forced_taken = 0;
}

absl::Status MaskPool::Advance(Text& text) {
  if (text.grammar != nullptr && text.matcher == nullptr) {
    text.matcher = text.grammar->NewMatcher();
    CheckEnd(text);
  }
  if (QUIRE_BUG(mask_one_token_late)) QUIRE_RETURN_IF_ERROR(FillMask(text));
  QUIRE_RETURN_IF_ERROR(AcceptTokens(text));
  if (text.matcher != nullptr && text.matcher->Finished()) {
    text.state = TextState::kFinished;
    return absl::OkStatus();
  }
  if (!QUIRE_BUG(mask_one_token_late)) QUIRE_RETURN_IF_ERROR(FillMask(text));
  text.masks = 1;
  if (text.matcher == nullptr) return absl::OkStatus();
  absl::Status followed = FollowDrafts(text);
  if (followed.ok() && options_.looks_ahead) LookAhead(text);
  if (absl::Status charged = ChargeMatcher(text); !charged.ok()) {
    text.masks = 0;
    return charged;
  }
  return followed;
}

namespace {

bool Allows(std::span<const uint32_t> mask, TokenId token) {
  const size_t word = static_cast<size_t>(token) / 32;
  return token >= 0 && word < mask.size() && (mask[word] >> (token % 32) & 1) != 0;
}

// Most of a mask that holds one token is zero, and skipped many words at a time.
bool AllowsOne(std::span<const uint32_t> mask) {
  constexpr size_t kWords = 16;
  int count = 0;
  for (size_t begin = 0; begin < mask.size(); begin += kWords) {
    const std::span<const uint32_t> some =
        mask.subspan(begin, std::min(kWords, mask.size() - begin));
    if (some.size() == kWords) {
      uint32_t any = 0;
      for (size_t i = 0; i < kWords; ++i) any |= some[i];
      if (any == 0) continue;
    }
    for (const uint32_t word : some) count += std::popcount(word);
    if (count > 1) return false;
  }
  return count == 1;
}

}  // namespace

// The masks behind its drafts. The text's own state goes along with a draft that is certain, the
// only token that may come; from the first that is not, a copy does.
absl::Status MaskPool::FollowDrafts(Text& text) {
  std::unique_ptr<grammar::Matcher> copy;
  for (const TokenId draft : text.drafts) {
    const std::span<const uint32_t> before = Bits(text, text.masks - 1);
    if (!Allows(before, draft)) return absl::OkStatus();  // it will be rejected
    const bool certain = text.ahead && AllowsOne(before);
    if (copy == nullptr && !certain && !QUIRE_BUG(rejected_drafts_stay_in_the_text)) {
      copy = text.matcher->Fork();
    }
    grammar::Matcher& matcher = copy == nullptr ? *text.matcher : *copy;
    absl::Status status = matcher.Accept({&draft, 1});
    if (copy == nullptr && certain) ++text.followed;
    if (status.ok() && matcher.Finished()) {
      text.state = TextState::kFinished;
      return absl::OkStatus();
    }
    if (status.ok()) status = matcher.Mask(Bits(text, text.masks));
    if (!status.ok()) {
      if (copy == nullptr) return status;
      text.Fail(status);
      return absl::OkStatus();
    }
    ++text.masks;
  }
  return absl::OkStatus();
}

// An error stays in the matcher, whose next call says it again.
void MaskPool::LookAhead(Text& text) {
  if (!text.forced.empty()) return;
  if (text.state != TextState::kGoesOn || !AllowsOne(Bits(text, text.followed))) return;
  const absl::StatusOr<std::span<const TokenId>> forced = text.matcher->Forced();
  if (!forced.ok()) return;
  const size_t count = std::min(forced->size(), static_cast<size_t>(kMaxDraftTokens));
  text.forced.assign(forced->begin(), forced->begin() + static_cast<ptrdiff_t>(count));
  if (count == 0) WalkAhead(text);
}

// The same with a copy, mask by mask. The library forces nothing where tokens cannot spell every
// text.
void MaskPool::WalkAhead(Text& text) {
  const std::span<const uint32_t> first = Bits(text, text.followed);
  std::vector<uint32_t> mask(first.begin(), first.end());
  const std::unique_ptr<grammar::Matcher> copy = text.matcher->Fork();
  while (AllowsOne(mask) && text.forced.size() < static_cast<size_t>(kMaxDraftTokens)) {
    const auto word = std::ranges::find_if(mask, [](uint32_t bits) { return bits != 0; });
    const TokenId token =
        static_cast<TokenId>((word - mask.begin()) * 32) + std::countr_zero(*word);
    if (!copy->Accept({&token, 1}).ok()) return;
    text.forced.push_back(token);
    if (copy->Finished() || !copy->Mask(mask).ok()) return;
  }
}

// With a budget the tokens are taken one by one: whether a thought may end is a question to the
// grammar at that place.
absl::Status MaskPool::AcceptTokens(Text& text) {
  if (!text.thought) return text.matcher->Accept(text.tokens);
  for (const TokenId& token : text.tokens) {
    if (text.matcher != nullptr) QUIRE_RETURN_IF_ERROR(text.matcher->Accept({&token, 1}));
    text.thought->Accept(token);
    CheckEnd(text);
  }
  return absl::OkStatus();
}

void MaskPool::CheckEnd(Text& text) {
  if (!text.thought || !text.thought->BeginsToEnd()) return;
  if (text.matcher == nullptr || text.matcher->Finished()) return;
  if (!text.matcher->Fork()->Accept(text.thought->end()).ok()) text.thought->Postpone();
}

absl::Status MaskPool::FillMask(Text& text) {
  const std::optional<TokenId> forced = text.thought ? text.thought->Forced() : std::nullopt;
  if (forced) {
    std::fill(text.bits.begin(), text.bits.end(), 0);
    text.bits[static_cast<size_t>(*forced) / 32] = uint32_t{1} << (*forced % 32);
    if (series_ != nullptr && text.thought->BeginsToEnd()) series_->thoughts.Add();
    return absl::OkStatus();
  }
  if (text.matcher != nullptr) return text.matcher->Mask(Bits(text, 0));
  std::fill(text.bits.begin(), text.bits.end(), ~uint32_t{0});
  const int rest = options_.vocab_size % 32;
  if (rest != 0) text.bits.back() = (uint32_t{1} << rest) - 1;
  return absl::OkStatus();
}

absl::Status MaskPool::ChargeMatcher(Text& text) {
  const size_t bytes = text.matcher->MemoryBytes();
  const size_t before = bytes_.fetch_add(bytes - text.bytes, std::memory_order_relaxed);
  const size_t held = before - text.bytes + bytes;
  text.bytes = bytes;
  if (held <= options_.max_bytes) return absl::OkStatus();
  if (series_ != nullptr) series_->full.Add();
  return absl::ResourceExhaustedError(
      AbslView("constraint: the states of all constrained answers hold the " +
               std::to_string(options_.max_bytes) + " bytes that this worker has for them"));
}

size_t MaskPool::queued() {
  MutexLock lock(mutex_);
  return queue_.size() - next_;
}

std::shared_ptr<MaskPool::Text> MaskPool::Take() {
  std::unique_lock<std::mutex> lock(mutex_.native());
  while (next_ == queue_.size() && !stopping_) wake_.wait(lock);
  if (next_ == queue_.size()) return nullptr;
  std::shared_ptr<Text> text = std::move(queue_[next_++]);
  text->queued = false;
  if (next_ == queue_.size()) {
    queue_.clear();
    next_ = 0;
  }
  return text;
}

void MaskPool::Run(int index) {
  pthread_setname_np(pthread_self(), ("mask-" + std::to_string(index)).c_str());
  while (std::shared_ptr<Text> text = Take()) {
    if (Claim(*text)) Work(*text);
  }
}

}  // namespace quire
