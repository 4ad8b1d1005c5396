// How many descriptors the process may have open.
#pragma once

namespace quire {

// Raises the limit as far as the system permits: the usual soft limit of 1,024 is too few for a
// server.
void RaiseDescriptorLimit();

}  // namespace quire
