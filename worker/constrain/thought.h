// Where a choice is in its thoughts, and the token that has to come when these have used up their
// budget.
//
// One owner. The state is a function of the budget and the tokens that the choice has accepted, so
// that a resumed choice finds it again.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "common/ids.h"
#include "common/wire/thought_budget.h"

namespace quire {

class Thought {
 public:
  explicit Thought(std::shared_ptr<const ThoughtBudget> budget);

  void Accept(TokenId token);
  // The only token that may come next; none: any.
  std::optional<TokenId> Forced() const;
  // What ends a thought whose budget is used up.
  std::span<const TokenId> end() const { return budget_->end; }
  // Forced() is the first token of it.
  bool BeginsToEnd() const { return stage_ == Stage::kEnding && ended_ == 0; }
  // The end cannot begin here, as a grammar has it (in the middle of a character): it begins after
  // the next token, or never if that happens too often.
  void Postpone();

 private:
  enum class Stage : uint8_t { kOutside, kInside, kEnding, kOver };

  void Enter();
  void Leave();
  void Spend();
  bool EndsWith(const std::vector<ThoughtBudget::Mark>& marks) const;

  const std::shared_ptr<const ThoughtBudget> budget_;
  Stage stage_ = Stage::kOutside;
  uint64_t used_ = 0;          // tokens of thoughts
  size_t ended_ = 0;           // tokens of the end that have come
  int postponed_ = 0;          // times
  std::vector<TokenId> tail_;  // the last tokens, as many as a mark may have
};

}  // namespace quire
