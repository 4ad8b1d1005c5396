#include "worker/constrain/thought.h"

#include <algorithm>
#include <utility>

#include "common/check.h"

namespace quire {
namespace {

constexpr int kMaxPostponed = 3;  // a character has four bytes at most, and a token one at least

}  // namespace

Thought::Thought(std::shared_ptr<const ThoughtBudget> budget) : budget_(std::move(budget)) {
  QUIRE_CHECK(budget_ != nullptr && !budget_->end.empty());
  tail_.reserve(kMaxThoughtMarkIds);
  if (budget_->opened) Enter();
}

void Thought::Enter() {
  stage_ = Stage::kInside;
  Spend();
}

void Thought::Leave() { stage_ = budget_->repeats ? Stage::kOutside : Stage::kOver; }

void Thought::Spend() {
  if (used_ < budget_->tokens) return;
  stage_ = Stage::kEnding;
  ended_ = 0;
}

bool Thought::EndsWith(const std::vector<ThoughtBudget::Mark>& marks) const {
  return std::any_of(marks.begin(), marks.end(), [this](const ThoughtBudget::Mark& mark) {
    return mark.size() <= tail_.size() && std::equal(mark.rbegin(), mark.rend(), tail_.rbegin());
  });
}

void Thought::Accept(TokenId token) {
  if (stage_ == Stage::kOver) return;
  if (tail_.size() == kMaxThoughtMarkIds) tail_.erase(tail_.begin());
  tail_.push_back(token);
  if (stage_ == Stage::kEnding) {
    // Another token comes only from a worker that knows no budget: the thought is the model's own
    // again.
    if (token != budget_->end[ended_] || ++ended_ == budget_->end.size()) Leave();
    return;
  }
  if (stage_ == Stage::kOutside) {
    if (EndsWith(budget_->opens)) Enter();
    return;
  }
  ++used_;
  if (EndsWith(budget_->closes)) return Leave();
  Spend();
}

std::optional<TokenId> Thought::Forced() const {
  if (stage_ != Stage::kEnding) return std::nullopt;
  return budget_->end[ended_];
}

void Thought::Postpone() {
  QUIRE_CHECK(BeginsToEnd());
  stage_ = ++postponed_ > kMaxPostponed ? Stage::kOver : Stage::kInside;
}

}  // namespace quire
