// The flags of the router's limits: what one request may ask for, what clients may make the router
// hold, and how long they may take.
#pragma once

#include "common/config/schema.h"
#include "router/config.h"

namespace quire {

void AddLimitFlags(config::Schema& schema, RouterConfig& config);

}  // namespace quire
