// What the router holds for a request, as an upper bound that is known before any of it is built.
//
// Pure functions; any thread. The constants are measured: tests count what a request, a choice and
// a token of the prompt really allocate and compare it with these.
#pragma once

#include <cstddef>
#include <cstdint>

#include "router/core/api.h"

namespace quire {

// A request without its prompt and choices: what the pipeline, the dispatcher and its edge keep of
// it.
inline constexpr size_t kBytesPerRequest = 12 << 10;
// A choice, from the launch of its request on: its stream, the fixed part of its journal, its
// window, and what the edge and the wire keep of it.
inline constexpr size_t kBytesPerChoice = 1 << 10;
// What a choice holds to take its text apart; arguments that wait for a name count as its outputs.
inline constexpr size_t kBytesPerReader = 4 << 10;
// Of a tool's definition, for the types of its parameters and while it is read: a parameter takes
// 8 bytes of text and a node of a map.
inline constexpr size_t kBytesPerToolByte = 24;
// The marks and the end of thoughts with a budget.
inline constexpr size_t kBytesPerThoughtBudget = 4 << 10;
// A token of a prompt: the ids in the request, its attempt, its frame and its answer.
inline constexpr size_t kBytesPerPromptToken = 24;
// A prompt's logprob, with the text of its token.
inline constexpr size_t kBytesPerLogprob = 256;

// A prompt as it came.
size_t PromptBytes(const Prompt& prompt);

// Everything but a prompt's text that is not tokenised yet: sampling parameters, token ids, resumed
// outputs, a prediction's text, its names, and its choices.
size_t HeldBytes(const GenerateRequest& request);

}  // namespace quire
