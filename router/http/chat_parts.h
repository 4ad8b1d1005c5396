// The JSON of what a chat's answer says: content, thoughts and calls, of a message and of deltas.
//
// Pure; private to router/http.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "router/core/api.h"

namespace quire {

// How calls and thoughts appear in the answers of one request.
struct ChatStyle {
  bool functions = false;  // as OpenAI's older function_call
  bool named = false;      // the client named the function: calling it is no reason to finish
  bool reasoning = true;   // thoughts are shown
};

struct WholeCall {
  std::string id, name, arguments;
};

// A piece of a whole answer's calls.
void AddPiece(const ToolCallDelta& piece, std::vector<WholeCall>& calls);

// {"role": "assistant", …}
struct ChatMessage {
  std::string_view text, reasoning;
  const std::vector<WholeCall>& calls;
};
void AppendMessage(const ChatMessage& message, const ChatStyle& style, std::string& out);

// Members of a chunk's delta: its words (its content, if there are none), and a piece of a call.
void AppendDelta(const Delta& delta, const ChatStyle& style, std::string& out);
void AppendCall(const ToolCallDelta& piece, const ChatStyle& style, std::string& out);

// Whether the chunk of a delta says something beside its calls.
bool SaysWords(const Delta& delta, const ChatStyle& style);

std::string_view FinishReasonOf(const ChoiceEnd& end, const ChatStyle& style);

}  // namespace quire
