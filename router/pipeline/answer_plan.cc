#include "router/pipeline/answer_plan.h"

#include <memory>
#include <string>
#include <utility>

#include "common/dialect/forcing.h"
#include "router/pipeline/behind_thought.h"
#include "router/pipeline/thought_plan.h"

namespace quire {
namespace {

bool Demands(const ToolUse& use) {
  return use.choice == ToolChoice::kRequired || use.choice == ToolChoice::kNamed;
}

ApiError Blaming(const absl::Status& status, std::string_view field) {
  ApiError error = ErrorFromStatus(status, field);
  error.param = std::string(field);
  return error;
}

dialect::Forcing ForcingOf(const AnswerAsk& ask) {
  dialect::Forcing forcing;
  forcing.dialect = ask.format.dialect;
  forcing.thoughts = ask.format.thoughts;
  forcing.thought_opened = ask.in_thought;
  forcing.count = Demands(ask.use) ? dialect::CallCount::kSome : dialect::CallCount::kAny;
  forcing.one = !ask.use.parallel;
  forcing.named = ask.use.name;
  forcing.special = [&ask](std::string_view mark) -> std::optional<TokenId> {
    const std::optional<TokenId> id = ask.format.tokens ? ask.text.TokenOf(mark) : std::nullopt;
    return id && ask.format.IsMark(*id) ? id : std::nullopt;
  };
  return forcing;
}

// The grammar of calls that are demanded or strict.
std::optional<ApiError> PlanCalls(const AnswerAsk& ask, AnswerPlan& plan) {
  const bool demands = Demands(ask.use);
  if (!demands && !dialect::AnyStrict(ask.chat.tools_json)) return std::nullopt;
  const std::string_view field = demands ? "tool_choice" : "tools";
  if (ask.constraint.kind != ConstraintKind::kNone) {
    return InvalidField(ask.constraint_field,
                        demands ? "cannot stand beside a tool_choice that demands a call"
                                : "cannot stand beside tools that are strict");
  }
  const absl::StatusOr<std::string> grammar =
      dialect::ForceCalls(ForcingOf(ask), ask.chat.tools_json);
  if (!grammar.ok()) {
    // Calls that begin as text does are held to nothing where text may come.
    if (!demands && dialect::BeginsAsText(*ask.format.dialect)) return std::nullopt;
    return Blaming(grammar.status(), field);
  }
  plan.constraint.emplace();
  plan.constraint->kind = ConstraintKind::kLark;
  plan.constraint->source = *grammar;
  plan.constraint_field = field;
  return std::nullopt;
}

// A constraint on the text of a model that thinks first.
std::optional<ApiError> PlanText(const AnswerAsk& ask, AnswerPlan& plan) {
  if (ask.constraint.kind == ConstraintKind::kNone) return std::nullopt;
  absl::StatusOr<std::optional<Constraint>> behind = BehindThought(ForcingOf(ask), ask.constraint);
  if (!behind.ok()) return Blaming(behind.status(), ask.constraint_field);
  plan.constraint = *std::move(behind);
  plan.constraint_field = ask.constraint_field;
  return std::nullopt;
}

}  // namespace

Result<AnswerPlan> PlanAnswer(const AnswerAsk& ask) {
  AnswerPlan plan;
  Result<std::shared_ptr<const ThoughtBudget>> thoughts = PlanThoughts(ask);
  if (!thoughts.ok()) return thoughts.error();
  plan.thought_budget = std::move(thoughts.value());
  const AnswerFormat& format = ask.format;
  const bool calls = MayCall(format, ask.chat, ask.use);
  const bool channels =
      format.dialect != nullptr && format.dialect->form == dialect::Form::kChannels;
  if (!calls && !channels && format.thoughts == nullptr) return plan;
  AnswerReading& reading = plan.reading.emplace();
  reading.parser.dialect = format.dialect;
  reading.parser.thoughts = format.thoughts;
  reading.parser.thought_opened = ask.in_thought;
  reading.parser.tokens = format.tokens;
  reading.parser.calls = calls;
  reading.one_call = calls && !ask.use.parallel;
  if (calls) {
    const bool nested = format.dialect != nullptr && format.dialect->form == dialect::Form::kNested;
    absl::StatusOr<dialect::ToolTypes> types =
        dialect::ToolTypes::FromJson(ask.chat.tools_json, nested);
    if (!types.ok()) return ErrorFromStatus(Annotate(types.status(), "tools"), "tools");
    reading.parser.types = std::make_shared<const dialect::ToolTypes>(*std::move(types));
    if (auto error = PlanCalls(ask, plan)) return *error;
  }
  if (!plan.constraint) {
    if (auto error = PlanText(ask, plan)) return *error;
  }
  return plan;
}

}  // namespace quire
