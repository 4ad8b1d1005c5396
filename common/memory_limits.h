// How much memory this process may use: the smallest of its cgroup limits and what the machine has
// available.
//
// Values and pure functions, except ReadMemoryFiles, which reads /proc and /sys once at start.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace quire {

// One cgroup on the way from the process's own to the root: the text of its limit, usage and
// statistics files, v1 or v2.
struct CgroupMemory {
  std::string limit;  // "max", or bytes
  std::string usage;  // bytes; may be empty
  std::string stat;   // "name bytes" lines; may be empty
};

struct MemoryFiles {
  std::string meminfo;                // /proc/meminfo
  std::vector<CgroupMemory> cgroups;  // empty outside of any cgroup
};

struct MemoryLimit {
  int64_t usable_bytes = 0;  // what may still be allocated
  bool from_cgroup = false;  // a cgroup is tighter than the machine
};

// `root` is "/", or a folder laid out like it in tests. Files that are missing stay empty.
MemoryFiles ReadMemoryFiles(const std::string& root);

// The usable memory according to the files. A cgroup's usage includes file pages that the kernel
// releases on demand (a model file that was read before, say), so these are subtracted; 0 bytes
// when no file has a value. Unlimited cgroups ("max", or v1's number near 2^63) do not count.
MemoryLimit UsableMemory(const MemoryFiles& files);

// A whole number with trailing white space; nothing for other text or above 2^63 − 1.
std::optional<int64_t> ParseByteCount(std::string_view text);

}  // namespace quire
