// Bodies of /api/generate and /api/chat, as requests of the pipeline.
//
// Any thread; pure. Bodies are hostile: size, depth, counts and numbers are checked, and an error
// names the field in Ollama's spelling. Options that are unknown or not served are refused by name;
// those that only say how Ollama loads a model have no effect and are listed as unknown fields.
#pragma once

#include <optional>
#include <string_view>

#include "router/chat/answer_events.h"
#include "router/core/request_limits.h"

namespace quire::ollama {

enum class Kind : uint8_t { kGenerate, kChat };

// nullopt: `out` is the request. One without a prompt has only_load.
std::optional<ApiError> ReadRequest(Kind kind, std::string_view body, const RequestLimits& limits,
                                    AgentRequest& out);

// An error of the pipeline, whose fields have other names there.
ApiError InClientsWords(Kind kind, ApiError error);

// The name in {"model": …}, or in {"name": …} of older clients, of a small body.
std::optional<ApiError> ReadModelName(std::string_view body, std::string& out);
inline constexpr size_t kMaxSmallBodyBytes = 64u << 10;

}  // namespace quire::ollama
