// The budget of a chat's thoughts in the tokens of its model: which tokens begin and end a thought,
// and what is written to end it, as the model's dialect says.
//
// A pure function, called off the event loop.
#pragma once

#include <memory>

#include "common/wire/thought_budget.h"
#include "router/pipeline/answer_plan.h"

namespace quire {

// nullptr: the model has no thoughts, or does not mark them by tokens, and the client cannot know.
// INVALID_ARGUMENT names the client's field.
Result<std::shared_ptr<const ThoughtBudget>> PlanThoughts(const AnswerAsk& ask);

}  // namespace quire
