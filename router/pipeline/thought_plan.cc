#include "router/pipeline/thought_plan.h"

#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "common/dialect/table.h"

namespace quire {
namespace {

using Budget = std::shared_ptr<const ThoughtBudget>;

bool HasChannels(const AnswerFormat& format) {
  return format.dialect != nullptr && format.dialect->form == dialect::Form::kChannels;
}

class Planner {
 public:
  explicit Planner(const AnswerAsk& ask) : ask_(ask) {}

  Result<Budget> Plan() {
    budget_->tokens = *ask_.thinking.budget;
    budget_->opened = ask_.in_thought;
    const std::string end = HasChannels(ask_.format) ? Channels() : Marks();
    if (end.empty()) return Unmarked();
    absl::StatusOr<std::vector<TokenId>> ids = ask_.text.Encode(end, false);
    if (!ids.ok()) return ErrorFromStatus(ids.status(), ask_.thinking.budget_field);
    const bool fits = !ids->empty() && ids->size() <= kMaxThoughtEndIds;
    if (!fits) return Unmarked();
    budget_->end = *std::move(ids);
    return Budget(std::move(budget_));
  }

 private:
  Result<Budget> Unmarked() const {
    if (!ask_.thinking.budget_firm) return Budget();
    return InvalidField(ask_.thinking.budget_field,
                        ask_.format.thoughts == nullptr
                            ? "needs a model that writes thoughts, which this one does not; leave "
                              "it out"
                            : "needs a model that ends its thoughts with a token of its own, which "
                              "this one does not; leave it out");
  }

  // True where it is one token.
  bool Add(std::string_view mark, std::vector<ThoughtBudget::Mark>& marks) {
    const std::optional<TokenId> id = ask_.text.TokenOf(mark);
    if (id && marks.size() < kMaxThoughtMarks) marks.push_back({*id});
    return id.has_value();
  }

  // What ends a thought; "": no token does.
  std::string Marks() {
    const dialect::Thoughts* thoughts = ask_.format.thoughts;
    if (thoughts == nullptr) return "";
    budget_->opened = budget_->opened || thoughts->opened;
    budget_->repeats = thoughts->repeats;
    std::string end;
    for (const dialect::Mark& mark : thoughts->closes) {
      if (Add(mark.text, budget_->closes) && end.empty()) end = mark.text;
    }
    for (const dialect::Mark& mark : thoughts->opens) Add(mark.text, budget_->opens);
    // A call ends a thought, too.
    const bool calls = MayCall(ask_.format, ask_.chat, ask_.use);
    if (calls) {
      for (const dialect::Trigger& trigger : ask_.format.dialect->triggers) {
        if (!trigger.soft) Add(trigger.mark.text, budget_->closes);
      }
      for (const dialect::Mark& mark : ask_.format.dialect->openers) {
        Add(mark.text, budget_->closes);
      }
      if (!ask_.format.dialect->part.empty()) Add(ask_.format.dialect->part, budget_->closes);
    }
    if (end.empty() || !thoughts->lines) return end;
    return "\n" + end + "\n\n";
  }

  // Harmony's thoughts are messages of the channel for analysis. A model that may call chooses the
  // next channel itself; another one answers.
  std::string Channels() {
    budget_->repeats = true;
    absl::StatusOr<std::vector<TokenId>> open =
        ask_.text.Encode("<|channel|>analysis<|message|>", false);
    if (!open.ok() || open->empty() || open->size() > kMaxThoughtMarkIds) return "";
    budget_->opens.push_back(*std::move(open));
    for (const std::string_view mark : dialect::kHarmonyMarks) {
      if (!Add(mark, budget_->closes)) return "";
    }
    const bool calls = MayCall(ask_.format, ask_.chat, ask_.use);
    return std::string("<|end|><|start|>assistant") + (calls ? "" : "<|channel|>final<|message|>");
  }

  const AnswerAsk& ask_;
  std::shared_ptr<ThoughtBudget> budget_ = std::make_shared<ThoughtBudget>();
};

}  // namespace

Result<Budget> PlanThoughts(const AnswerAsk& ask) {
  if (!ask.thinking.budget) return Budget();
  return Planner(ask).Plan();
}

}  // namespace quire
