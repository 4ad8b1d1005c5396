// The name of a worker that has no --worker-id.
#pragma once

#include <string>

namespace quire {

// MACHINE:PORT, or MACHINE/HOST:PORT where `listen` (HOST:PORT) names one of its addresses. The
// same after a restart, and different from other workers': machines may share a name where each has
// its own address.
std::string OwnName(const std::string& listen, int port);

}  // namespace quire
