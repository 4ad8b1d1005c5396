// The memory nodes of a host with several: which CPUs each has, and where pages of memory go.
//
// Pure values, and calls to the system that may fail without harm: memory is then where it is
// touched first.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace quire::kernels::cpu {

struct NumaNode {
  int id = 0;
  std::vector<int> cpus;  // those that this process may use; never empty
};

// In the order of ids. `root` is "/", or a folder laid out like it in tests. Empty where the system
// does not say, or where all CPUs are of one node.
std::vector<NumaNode> ReadNumaNodes(const std::string& root);

// Those of one of several processes that share the host: a part of the nodes, or where there are
// more processes than nodes, the one of its turn.
std::vector<NumaNode> NodesOfPart(const std::vector<NumaNode>& nodes, int part, int parts);

// "0-3,8" as numbers; none where the text is no such list. At most kMostListed.
std::vector<int> ParseCpuList(const std::string& text);
inline constexpr int kMostListed = 4096;

// `count` pieces, or threads, are dealt to the nodes in their order, by how many CPUs each has: the
// first piece of a node, and `count` for the node after the last. No nodes are as one.
int64_t FirstPiece(int node, int64_t count, const std::vector<NumaNode>& nodes);
// The node of piece `index`; 0 without nodes.
int NodeOfPiece(int64_t index, int64_t count, const std::vector<NumaNode>& nodes);
// Without those that get none of so many threads.
std::vector<NumaNode> NodesOfThreads(const std::vector<NumaNode>& nodes, int threads);
// The node of the CPU that the calling thread runs on; 0 where it is of none.
int NodeOfCaller(const std::vector<NumaNode>& nodes);

// The calling thread, and threads that it starts, run on the node's CPUs from now on.
void RunOnNode(const NumaNode& node);

// Whole pages inside [data, data + bytes) that were not touched yet come from the node, or from all
// nodes in turns. False where the system refuses.
bool PlaceOnNode(const std::byte* data, int64_t bytes, const NumaNode& node);
bool PlaceOnAllNodes(const std::byte* data, int64_t bytes, const std::vector<NumaNode>& nodes);

}  // namespace quire::kernels::cpu
