// How many descriptors the process may have open.
#pragma once

namespace quire {

// As many as the system lets it have: the usual soft limit of 1,024 is too few for a server.
void RaiseDescriptorLimit();

}  // namespace quire
