// What happens to a request, in the words of quire.h: members of JSON objects.
//
// Pure functions.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "router/core/api.h"

namespace quire {

// A choice of an answer that is given at once.
struct ChoiceText {
  std::string text, reasoning;
  std::vector<ToolCallDelta> tool_calls;  // each whole, by index
  std::vector<TokenId> ids;
  std::vector<TokenLogprob> logprobs;
  ChoiceEnd end;
};
void Join(const Delta& delta, ChoiceText& choice);

// Each member that these append begins with a comma.
void AppendStart(const Started& started, std::string& out);
void AppendDelta(const Delta& delta, std::string& out);
void AppendChoiceEnd(const ChoiceEnd& end, std::string& out);
void AppendUsage(const Usage& usage, std::string& out);
void AppendOutputs(const std::vector<ChoiceText>& choices, std::string& out);
void AppendError(const ApiError& error, std::string& out);

// "[1,2,3]".
void AppendIds(std::span<const TokenId> ids, std::string& out);

}  // namespace quire
