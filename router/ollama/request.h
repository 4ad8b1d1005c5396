// Bodies of /api/generate and /api/chat, as requests of the pipeline.
//
// Any thread; pure. Bodies are hostile: size, depth, counts and numbers are checked, and an error
// names the field in Ollama's spelling. Options that are unknown or not served are refused by name;
// those that only say how Ollama loads a model have no effect and are listed as unknown fields.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "router/chat/answer_events.h"
#include "router/core/request_limits.h"

namespace quire::ollama {

enum class Kind : uint8_t { kGenerate, kChat };

// nullopt: `out` is the request. One without a prompt has only_load.
std::optional<ApiError> ReadRequest(Kind kind, std::string_view body, const RequestLimits& limits,
                                    AgentRequest& out);

// An error of the pipeline, whose fields have other names there.
ApiError InClientsWords(Kind kind, ApiError error);

// The name in {"model": …}, or in {"name": …} of older clients, of a small body; where it is asked
// for, also {"stream": …}.
std::optional<ApiError> ReadModelName(std::string_view body, std::string& out,
                                      bool* stream = nullptr);
inline constexpr size_t kMaxSmallBodyBytes = 64u << 10;

// What a client may pull: a short name, or hf:ORG/REPO[:REVISION][/FILE.gguf], which may begin with
// hf.co/ too.
std::optional<ApiError> CheckPullName(std::string_view name);
inline constexpr size_t kMaxPullNameBytes = 512;
// The served names that a model of such a name may have, likeliest first.
std::vector<std::string> ServedNamesOf(std::string_view name);

}  // namespace quire::ollama
