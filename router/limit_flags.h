// The flags of the router's limits: how large one request may be, how much the router holds for
// clients, and how long they may take.
#pragma once

#include "common/config/schema.h"
#include "router/config.h"

namespace quire {

void AddLimitFlags(config::Schema& schema, RouterConfig& config);

}  // namespace quire
