// The chat template of a worker: the model's own, or the one of --chat-template.
//
// Blocking, on the calling thread, at the start.
#pragma once

#include <string>

#include "common/status.h"
#include "common/text/text_bundle.h"

namespace quire {

// The source that --chat-template means, of a file or a built-in template; empty
// where the flag is.
// INVALID_ARGUMENT for one that cannot be read or has a fault.
absl::StatusOr<std::string> ChatTemplateOf(const std::string& flag);

// INVALID_ARGUMENT where the built-in template `flag` needs tokens that the model's tokenizer has
// not.
absl::Status CheckTemplateTokens(const std::string& flag, const text::TextBundle& bundle);

// What a person has to know about chats with this model, and what to do; empty: nothing.
std::string ChatWarning(const text::TextBundle& bundle);

}  // namespace quire
