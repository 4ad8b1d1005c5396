#include "worker/constrain/mask_pool.h"

#include <pthread.h>

#include <algorithm>
#include <mutex>
#include <optional>
#include <utility>

#include "common/check.h"
#include "common/planted_bug.h"
#include "common/status.h"
#include "worker/constrain/thought.h"

namespace quire {
namespace {

// Seconds: a mask takes some microseconds as a rule, and some milliseconds at the limits.
std::vector<double> MaskBuckets() {
  return {0.000005, 0.00001, 0.00002, 0.00005, 0.0001, 0.0002, 0.0005, 0.001,
          0.002,    0.005,   0.01,    0.02,    0.05,   0.1,    0.2,    0.5};
}

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
  std::vector<uint32_t> bits;
  TextState state = TextState::kGoesOn;
  std::string why;
  size_t bytes = 0;  // of the matcher, as counted in `all`
  std::atomic<Stage> stage{Stage::kReady};
};

struct MaskPool::Series {
  explicit Series(Metrics& metrics)
      : mask(metrics.AddHistogram({"quire_worker_mask_seconds",
                                   "Time to compute which tokens may follow in one constrained "
                                   "row."},
                                  MaskBuckets())),
        step(metrics.AddHistogram({"quire_worker_step_mask_seconds",
                                   "The same for all constrained rows of a step, by phase: work "
                                   "(on all threads together), wait (of the step for its masks).",
                                   {{"phase", "work"}}},
                                  MaskBuckets())),
        wait(metrics.AddHistogram({"quire_worker_step_mask_seconds", "", {{"phase", "wait"}}},
                                  MaskBuckets())),
        texts(metrics.AddGauge(
            {"quire_worker_constrained_texts", "Answers that are being written under a grammar."})),
        bytes(metrics.AddGauge(
            {"quire_worker_constraint_state_bytes", "Memory of the states of these answers."})),
        full(metrics.AddCounter({"quire_worker_constraint_state_full_total",
                                 "Answers that failed because the states of all held the memory "
                                 "that there is for them."})),
        thoughts(metrics.AddCounter(
            {"quire_worker_thoughts_ended_total",
             "Thoughts that were ended because the request's budget for them was used up."})) {}

  Histogram& mask;
  Histogram& step;
  Histogram& wait;
  Gauge& texts;
  Gauge& bytes;
  Counter& full;
  Counter& thoughts;
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
  text->stage.store(Stage::kWaits, std::memory_order_release);
  if (QUIRE_BUG(forks_share_a_constraint)) {
    for (const auto& [other, shared] : texts_) {
      if (shared->grammar == text->grammar) text = shared;
    }
  }
  batch_.push_back(text);
  const bool added = texts_.emplace(sequence, std::move(text)).second;
  QUIRE_CHECK_MSG(added, "a sequence begins two texts");
  if (series_ != nullptr) series_->texts.Set(static_cast<double>(texts_.size()));
}

void MaskPool::Accept(uint64_t sequence, TokenId token) {
  const auto found = texts_.find(sequence);
  QUIRE_CHECK_MSG(found != texts_.end(), "a sequence has no text");
  Text& text = *found->second;
  QUIRE_CHECK(text.stage.load(std::memory_order_acquire) == Stage::kReady ||
              QUIRE_BUG(forks_share_a_constraint));
  text.tokens.push_back(token);
  text.stage.store(Stage::kWaits, std::memory_order_release);
  batch_.push_back(found->second);
}

void MaskPool::Send() {
  if (batch_.empty()) return;
  const size_t count = batch_.size();
  if (series_ != nullptr) {
    const int64_t worked_us = worked_us_.exchange(0, std::memory_order_relaxed);
    if (worked_us > 0) series_->step.Observe(Seconds(worked_us));
    if (worked_us > 0) series_->wait.Observe(Seconds(waited_us_));
    waited_us_ = 0;
    series_->bytes.Set(static_cast<double>(bytes()));
  }
  if (!threads_.empty()) {
    MutexLock lock(mutex_);
    for (std::shared_ptr<Text>& text : batch_) queue_.push_back(std::move(text));
  }
  batch_.clear();
  for (size_t i = 0; i < std::min(count, threads_.size()); ++i) wake_.notify_one();
}

TextState MaskPool::Look(uint64_t sequence) const {
  const Text& text = Find(sequence);
  QUIRE_CHECK_MSG(text.stage.load(std::memory_order_acquire) == Stage::kReady,
                  "a mask has not been used");
  return text.state;
}

const std::string& MaskPool::WhyFailed(uint64_t sequence) const { return Find(sequence).why; }

// The threads free it: its states may be large.
void MaskPool::End(uint64_t sequence) {
  const auto found = texts_.find(sequence);
  QUIRE_CHECK_MSG(found != texts_.end(), "a sequence has no text");
  std::shared_ptr<Text> text = std::move(found->second);
  texts_.erase(found);
  Stage waits = Stage::kWaits;
  if (!QUIRE_BUG(forks_share_a_constraint)) {
    text->stage.compare_exchange_strong(waits, Stage::kGone, std::memory_order_acq_rel);
  }
  if (series_ != nullptr) series_->texts.Set(static_cast<double>(texts_.size()));
  if (threads_.empty()) return;
  {
    MutexLock lock(mutex_);
    queue_.push_back(std::move(text));
  }
  wake_.notify_one();
}

std::span<const uint32_t> MaskPool::MaskOf(uint64_t sequence) {
  const auto found = texts_.find(sequence);
  if (found == texts_.end()) return {};  // it has ended since the step was launched
  Text& text = *found->second;
  if (text.stage.load(std::memory_order_acquire) != Stage::kReady) {
    const int64_t begin_us = Now();
    if (Claim(text)) Work(text);
    Stage stage = text.stage.load(std::memory_order_acquire);
    while (stage == Stage::kBusy) {
      text.stage.wait(stage, std::memory_order_acquire);
      stage = text.stage.load(std::memory_order_acquire);
    }
    QUIRE_CHECK(stage == Stage::kReady);
    waited_us_ += Now() - begin_us;
  }
  return text.bits;
}

bool MaskPool::Claim(Text& text) const {
  Stage waits = Stage::kWaits;
  return text.stage.compare_exchange_strong(waits, Stage::kBusy, std::memory_order_acq_rel);
}

void MaskPool::Work(Text& text) {
  const int64_t begin_us = Now();
  if (text.state != TextState::kFailed) {
    if (const absl::Status status = Advance(text); !status.ok()) {
      text.state = TextState::kFailed;
      text.why = StatusMessage(status);
      if (!text.why.starts_with("constraint: ")) text.why = "constraint: " + text.why;
    }
  }
  if (text.state != TextState::kGoesOn) std::fill(text.bits.begin(), text.bits.end(), 0);
  text.tokens.clear();
  if (series_ != nullptr) {
    const int64_t took_us = Now() - begin_us;
    series_->mask.Observe(Seconds(took_us));
    worked_us_.fetch_add(std::max<int64_t>(1, took_us), std::memory_order_relaxed);
  }
  text.stage.store(Stage::kReady, std::memory_order_release);
  text.stage.notify_all();
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
  return text.matcher == nullptr ? absl::OkStatus() : ChargeMatcher(text);
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
  if (text.matcher != nullptr) return text.matcher->Mask(text.bits);
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

std::shared_ptr<MaskPool::Text> MaskPool::Take() {
  std::unique_lock<std::mutex> lock(mutex_.native());
  while (next_ == queue_.size() && !stopping_) wake_.wait(lock);
  if (next_ == queue_.size()) return nullptr;
  std::shared_ptr<Text> text = std::move(queue_[next_++]);
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
