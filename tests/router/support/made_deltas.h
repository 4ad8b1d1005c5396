// Deltas and ends as a pipeline gives them to an answer, made by hand.
#pragma once

#include <string>
#include <utility>

#include "router/core/api.h"

namespace quire {

inline Delta Text(std::string text) {
  Delta delta;
  delta.text = std::move(text);
  return delta;
}
inline Delta Thought(std::string text) {
  Delta delta;
  delta.reasoning = std::move(text);
  return delta;
}
inline Delta Call(uint32_t index, std::string id, std::string name, std::string arguments) {
  Delta delta;
  delta.tool_calls.push_back({index, std::move(id), std::move(name), std::move(arguments)});
  return delta;
}
inline ChoiceEnd Ended(std::string reason) {
  ChoiceEnd end;
  end.finish_reason = std::move(reason);
  return end;
}

}  // namespace quire
