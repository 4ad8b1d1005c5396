// Whether the process's memory, which may hold private keys and prompts, can get to a disk or to
// another process of the same user.
#pragma once

namespace quire {

// No core is written when the process crashes, and no process of the same user may look into it:
// neither a debugger nor whoever reads /proc/PID/mem. For the life of the process; what it starts
// later has the limit, and may be looked into.
void ForbidCoreDumps();

}  // namespace quire
