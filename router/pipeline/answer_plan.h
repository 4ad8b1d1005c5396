// How the answer to a chat is read, and what it must be: tools and thoughts of a request meet the
// dialect of its model.
//
// A pure function, called off the event loop: tools may be large. Invariants:
//  1. Calls that are demanded, and calls of strict tools, are held to a grammar in the model's own
//     dialect, behind its thoughts.
//  2. A constraint on the text begins behind the thoughts.
#pragma once

#include <memory>
#include <optional>
#include <string_view>

#include "common/wire/constraint.h"
#include "common/wire/thought_budget.h"
#include "router/core/answer_format.h"
#include "router/core/result.h"
#include "router/stream/answer_reader.h"

namespace quire {

struct AnswerAsk {
  const ModelText& text;
  const AnswerFormat& format;
  const ChatPrompt& chat;
  const ToolUse& use;
  const Constraint& constraint;  // of the text, if any
  std::string_view constraint_field;
  bool in_thought = false;  // the rendered chat ends inside a thought
  Thinking thinking = {};
};

struct AnswerPlan {
  std::optional<AnswerReading> reading;  // without its id_key; none: the answer is content alone
  std::optional<Constraint> constraint;  // in place of that of the request
  std::string_view constraint_field;     // with `constraint`
  std::shared_ptr<const ThoughtBudget> thought_budget;  // nullptr: none
};

// INVALID_ARGUMENT names the field.
Result<AnswerPlan> PlanAnswer(const AnswerAsk& ask);

}  // namespace quire
