#include "kernels/cpu/numa.h"

#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <fstream>
#include <string_view>

namespace quire::kernels::cpu {
namespace {

// Of Linux' mbind(2), whose library is not needed for two calls.
constexpr int kPreferred = 1;
constexpr int kInterleaved = 3;
constexpr int kBitsOfWord = 64;
constexpr int kMostNodes = 1024;
constexpr int kMostListText = 65536;

bool Bind(const std::byte* data, int64_t bytes, int mode, const std::vector<NumaNode>& nodes) {
  const auto page = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
  const auto begin = (reinterpret_cast<uintptr_t>(data) + page - 1) / page * page;
  const auto end =
      (reinterpret_cast<uintptr_t>(data) + static_cast<uintptr_t>(bytes)) / page * page;
  if (begin >= end) return true;
  unsigned long mask[kMostNodes / kBitsOfWord] = {};
  for (const NumaNode& node : nodes) mask[node.id / kBitsOfWord] |= 1UL << node.id % kBitsOfWord;
  return syscall(SYS_mbind, begin, end - begin, mode, mask, kMostNodes, 0) == 0;
}

std::string FirstLine(const std::string& path) {
  std::ifstream file(path);
  std::string text(kMostListText, '\0');
  file.read(text.data(), kMostListText);
  text.resize(static_cast<size_t>(file.gcount()));
  return text.substr(0, text.find('\n'));
}

}  // namespace

std::vector<int> ParseCpuList(const std::string& text) {
  std::vector<int> numbers;
  const char* at = text.data();
  const char* const end = at + text.size();
  while (at < end) {
    int first = 0;
    auto read = std::from_chars(at, end, first);
    if (read.ec != std::errc() || first < 0) return {};
    int last = first;
    if (read.ptr < end && *read.ptr == '-') {
      read = std::from_chars(read.ptr + 1, end, last);
      if (read.ec != std::errc()) return {};
    }
    if (last < first || last - first >= kMostListed - static_cast<int>(numbers.size())) return {};
    for (int number = first; number <= last; ++number) numbers.push_back(number);
    if (read.ptr < end && *read.ptr != ',') return {};
    at = read.ptr + 1;
  }
  return numbers;
}

std::vector<NumaNode> ReadNumaNodes(const std::string& root) {
  cpu_set_t allowed;
  CPU_ZERO(&allowed);
  if (sched_getaffinity(0, sizeof(allowed), &allowed) != 0) return {};
  const std::string folder = root + "/sys/devices/system/node";
  std::vector<NumaNode> nodes;
  for (const int id : ParseCpuList(FirstLine(folder + "/online"))) {
    if (id >= kMostNodes) continue;
    NumaNode node{id, {}};
    for (const int cpu :
         ParseCpuList(FirstLine(folder + "/node" + std::to_string(id) + "/cpulist"))) {
      if (cpu < CPU_SETSIZE && CPU_ISSET(cpu, &allowed)) node.cpus.push_back(cpu);
    }
    if (!node.cpus.empty()) nodes.push_back(std::move(node));
  }
  if (nodes.size() < 2) nodes.clear();
  return nodes;
}

std::vector<NumaNode> NodesOfPart(const std::vector<NumaNode>& nodes, int part, int parts) {
  const auto count = static_cast<int64_t>(nodes.size());
  if (parts <= 1 || count == 0) return nodes;
  const int64_t begin = count * part / parts;
  const int64_t end = std::max(begin + 1, count * (part + 1) / parts);
  return {nodes.begin() + begin, nodes.begin() + end};
}

void RunOnNode(const NumaNode& node) {
  cpu_set_t set;
  CPU_ZERO(&set);
  for (const int cpu : node.cpus) CPU_SET(cpu, &set);
  sched_setaffinity(0, sizeof(set), &set);
}

bool PlaceOnNode(const std::byte* data, int64_t bytes, const NumaNode& node) {
  return Bind(data, bytes, kPreferred, {node});
}

bool PlaceOnAllNodes(const std::byte* data, int64_t bytes, const std::vector<NumaNode>& nodes) {
  return Bind(data, bytes, kInterleaved, nodes);
}

}  // namespace quire::kernels::cpu
