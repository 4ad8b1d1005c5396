#include "common/memory_limits.h"

#include <algorithm>
#include <charconv>
#include <fstream>
#include <iterator>
#include <sstream>

namespace quire {
namespace {

// The kernel rounds v1's "no limit" down to a page: anything this large is none.
constexpr int64_t kUnlimited = int64_t{1} << 60;
constexpr size_t kMaxCgroupDepth = 64;
constexpr size_t kMaxFileBytes = 1 << 20;

std::string ReadSmallFile(const std::string& path) {
  std::ifstream stream(path, std::ios::binary);
  std::string text(std::istreambuf_iterator<char>(stream), {});
  if (text.size() > kMaxFileBytes) text.resize(kMaxFileBytes);
  return text;
}

// The group's own path in a line "<number>:<controllers>:<path>" of /proc/self/cgroup; v2's has no
// controllers.
std::optional<std::string> GroupPath(const std::string& table, std::string_view controller) {
  std::istringstream lines(table);
  for (std::string line; std::getline(lines, line);) {
    const size_t first = line.find(':');
    const size_t second = first == std::string::npos ? first : line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string names = "," + line.substr(first + 1, second - first - 1) + ",";
    const std::string wanted = "," + std::string(controller) + ",";
    if (names.find(wanted) != std::string::npos) return line.substr(second + 1);
  }
  return std::nullopt;
}

struct FileNames {
  const char* limit;
  const char* usage;
};

void WalkUp(const std::string& mount, std::string path, const FileNames& names,
            std::vector<CgroupMemory>& out) {
  // In a container the path may be the host's, which is not mounted here; the mount's own files
  // then count.
  for (size_t depth = 0; depth < kMaxCgroupDepth; ++depth) {
    while (!path.empty() && path.back() == '/') path.pop_back();
    const std::string folder = mount + path + "/";
    CgroupMemory group{ReadSmallFile(folder + names.limit), ReadSmallFile(folder + names.usage),
                       ReadSmallFile(folder + "memory.stat")};
    if (!group.limit.empty()) out.push_back(std::move(group));
    if (path.empty()) return;
    path.resize(path.rfind('/') == std::string::npos ? 0 : path.rfind('/'));
  }
}

std::optional<int64_t> MeminfoBytes(std::string_view text, std::string_view key) {
  const size_t place = text.find(key);
  if (place == std::string_view::npos) return std::nullopt;
  std::string_view rest = text.substr(place + key.size());
  rest.remove_prefix(std::min(rest.find_first_not_of(" \t"), rest.size()));
  const std::optional<int64_t> kilobytes = ParseByteCount(rest.substr(0, rest.find(' ')));
  if (!kilobytes.has_value() || *kilobytes > INT64_MAX / 1024) return std::nullopt;
  return *kilobytes * 1024;
}

// The value of a line "name value"; 0 when there is none.
int64_t StatBytes(std::string_view text, std::string_view name) {
  while (!text.empty()) {
    const std::string_view line = text.substr(0, text.find('\n'));
    if (line.starts_with(name) && line.size() > name.size() && line[name.size()] == ' ') {
      return ParseByteCount(line.substr(name.size() + 1)).value_or(0);
    }
    text.remove_prefix(std::min(line.size() + 1, text.size()));
  }
  return 0;
}

// Usage without the file pages that the kernel releases under pressure. v1 counts its own group's
// pages in plain names and those of the groups below it in "total_" ones.
int64_t FirmUsage(const CgroupMemory& group) {
  const int64_t usage = ParseByteCount(group.usage).value_or(0);
  int64_t file = 0;
  for (const char* name : {"inactive_file", "active_file"}) {
    const int64_t total = StatBytes(group.stat, std::string("total_") + name);
    file += std::min(std::max(total, StatBytes(group.stat, name)), usage);
  }
  return std::max<int64_t>(usage - file, 0);
}

}  // namespace

std::optional<int64_t> ParseByteCount(std::string_view text) {
  while (!text.empty() && (text.back() == '\n' || text.back() == ' ')) text.remove_suffix(1);
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value < 0) return std::nullopt;
  return value;
}

MemoryFiles ReadMemoryFiles(const std::string& root) {
  MemoryFiles files;
  files.meminfo = ReadSmallFile(root + "/proc/meminfo");
  const std::string table = ReadSmallFile(root + "/proc/self/cgroup");
  if (const std::optional<std::string> path = GroupPath(table, ""); path.has_value()) {
    WalkUp(root + "/sys/fs/cgroup", *path, {"memory.max", "memory.current"}, files.cgroups);
  }
  if (const std::optional<std::string> path = GroupPath(table, "memory"); path.has_value()) {
    WalkUp(root + "/sys/fs/cgroup/memory", *path,
           {"memory.limit_in_bytes", "memory.usage_in_bytes"}, files.cgroups);
  }
  return files;
}

MemoryLimit UsableMemory(const MemoryFiles& files) {
  MemoryLimit result;
  bool known = false;
  if (const auto available = MeminfoBytes(files.meminfo, "MemAvailable:"); available.has_value()) {
    result.usable_bytes = *available;
    known = true;
  }
  for (const CgroupMemory& group : files.cgroups) {
    const std::optional<int64_t> limit = ParseByteCount(group.limit);
    if (!limit.has_value() || *limit >= kUnlimited) continue;
    const int64_t left = std::max<int64_t>(*limit - FirmUsage(group), 0);
    if (known && left >= result.usable_bytes) continue;
    result = {left, true};
    known = true;
  }
  return result;
}

}  // namespace quire
