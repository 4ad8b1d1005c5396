// Decides whether this worker can serve a Submit, and if not, which field prevents it.
//
// Pure. Everything in a Submit comes from a peer: a bad value is refused by name, never ignored,
// never asserted on.
#pragma once

#include <optional>

#include "common/wire/values.h"
#include "worker/adapters/adapter_slots.h"
#include "worker/engine/engine.h"

namespace quire {

// A refusal without its key, or nothing when this worker serves the values. The engine checks what
// depends on its state (queue, attempts, pages, drain).
std::optional<Refused> CheckSubmit(const Submit& submit, const EngineOptions& options,
                                   const AdapterSlots& adapters);

}  // namespace quire
