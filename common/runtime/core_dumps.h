// Whether the process's memory, which may hold private keys and prompts, can get to a disk or to
// another process of the same user.
#pragma once

namespace quire {

// Disables core dumps, and denies processes of the same user access to this one: to debuggers and
// to readers of /proc/PID/mem. For the lifetime of the process; a process that it starts later
// inherits the limit, but not the denied access.
void ForbidCoreDumps();

}  // namespace quire
