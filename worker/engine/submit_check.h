// Says whether this worker can serve a Submit, and if not, which field is in the way.
//
// Pure. Everything in a Submit comes from a peer: it is refused by name, never ignored, never
// asserted on.
#pragma once

#include <optional>

#include "common/wire/values.h"
#include "worker/engine/engine.h"

namespace quire {

// A refusal without its key, or nothing when the values are ones that this worker serves. What
// depends on the engine's state (queue, attempts, pages, drain) is the engine's to judge.
std::optional<Refused> CheckSubmit(const Submit& submit, const EngineOptions& options);

}  // namespace quire
