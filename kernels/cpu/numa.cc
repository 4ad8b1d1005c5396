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
  // The system reads one bit less than it is given.
  return syscall(SYS_mbind, begin, end - begin, mode, mask, kMostNodes + 1, 0) == 0;
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

int64_t FirstPiece(int node, int64_t count, const std::vector<NumaNode>& nodes) {
  int64_t before = 0, all = 0;
  for (int i = 0; i < static_cast<int>(nodes.size()); ++i) {
    const auto cpus = static_cast<int64_t>(nodes[static_cast<size_t>(i)].cpus.size());
    if (i < node) before += cpus;
    all += cpus;
  }
  return all == 0 ? node * count : (before * count + all - 1) / all;
}

int NodeOfPiece(int64_t index, int64_t count, const std::vector<NumaNode>& nodes) {
  int node = 0;
  while (node + 1 < static_cast<int>(nodes.size()) && FirstPiece(node + 1, count, nodes) <= index) {
    ++node;
  }
  return node;
}

std::vector<NumaNode> NodesOfThreads(const std::vector<NumaNode>& nodes, int threads) {
  std::vector<NumaNode> kept;
  for (int node = 0; node < static_cast<int>(nodes.size()); ++node) {
    if (FirstPiece(node, threads, nodes) < FirstPiece(node + 1, threads, nodes)) {
      kept.push_back(nodes[static_cast<size_t>(node)]);
    }
  }
  return kept;
}

int NodeOfCaller(const std::vector<NumaNode>& nodes) {
  if (nodes.empty()) return 0;
  const int cpu = sched_getcpu();
  for (size_t node = 0; node < nodes.size(); ++node) {
    if (std::ranges::binary_search(nodes[node].cpus, cpu)) return static_cast<int>(node);
  }
  return 0;
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
