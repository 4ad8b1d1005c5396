// The pool of threads: every task once, tasks of a node by its own threads, and a slow thread takes
// fewer.
#include "kernels/cpu/thread_pool.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <numeric>

#include "kernels/cpu/kernel_table.h"

namespace quire::kernels::cpu {
namespace {

// Nodes that all have every CPU of this host: threads are dealt to them, but run anywhere.
std::vector<NumaNode> Nodes(int count) {
  std::vector<int> cpus(1024);
  std::iota(cpus.begin(), cpus.end(), 0);
  std::vector<NumaNode> nodes;
  for (int id = 0; id < count; ++id) nodes.push_back({id, cpus});
  return nodes;
}

TEST(ThreadPool, RunsEveryTaskOnceInEveryJob) {
  for (const int nodes : {0, 2, 3, 8}) {
    for (const int threads : {1, 2, 5}) {
      ThreadPool pool(threads, Nodes(nodes));
      EXPECT_EQ(pool.nodes().size(), static_cast<size_t>(std::min(nodes, threads)));
      for (int job = 0; job < 300; ++job) {
        std::vector<std::atomic<int>> runs(1 + job % 23);
        pool.Run(static_cast<int>(runs.size()), [&](int index, int thread) {
          EXPECT_LT(thread, threads);
          runs[index].fetch_add(1);
        });
        for (const auto& count : runs) ASSERT_EQ(count.load(), 1);
      }
      pool.Run(0, [](int, int) { FAIL(); });
    }
  }
}

void Work(int milliseconds) {
  std::this_thread::sleep_for(std::chrono::milliseconds(milliseconds));
}

// A thread takes another node's task only when its own node has no more.
TEST(ThreadPool, TasksStayOnTheirNode) {
  constexpr int kTasks = 32, kThreads = 4;
  const std::vector<NumaNode> nodes = Nodes(2);
  ThreadPool pool(kThreads, nodes);
  std::atomic<int> begun[2] = {0, 0};
  pool.Run(kTasks, [&](int index, int thread) {
    const int of_task = NodeOfPiece(index, kTasks, nodes);
    begun[of_task].fetch_add(1);
    if (thread > 0) {  // the caller's thread is of the node where it runs
      const int own = NodeOfPiece(thread, kThreads, nodes);
      // The other threads may have drawn a task each that they have not begun.
      if (own != of_task) {
        EXPECT_GE(begun[own].load() + kThreads - 1, kTasks / 2);
      }
    }
    Work(1);
  });
  EXPECT_EQ(begun[0].load() + begun[1].load(), kTasks);
}

// A core that others took: the rest of its tasks goes to all other threads, of its node or not.
TEST(ThreadPool, AStalledThreadCostsOneTask) {
  for (const int nodes : {0, 2}) {
    constexpr int kTasks = 32;
    ThreadPool pool(4, Nodes(nodes));
    std::atomic<int> others{0}, stalled{0};
    pool.Run(kTasks, [&](int, int thread) {
      if (thread != 3) {
        Work(1);
        others.fetch_add(1);
        return;
      }
      stalled.fetch_add(1);
      for (int i = 0; i < 5000 && others.load() < kTasks - stalled.load(); ++i) Work(1);
    });
    EXPECT_LE(stalled.load(), 1) << nodes << " nodes";
    EXPECT_EQ(others.load() + stalled.load(), kTasks);
  }
}

// Jobs have several pieces for each thread (cpu_program_share.h), so a thread of half speed takes
// about half as many: a step loses its share of one thread, and not half its speed. Here one ends
// a task while the others end two each.
TEST(ThreadPool, ASlowThreadTakesFewerTasks) {
  constexpr int kThreads = 4, kTasks = 8 * kThreads;
  ThreadPool pool(kThreads);
  std::atomic<int> others{0}, slow{0};
  pool.Run(kTasks, [&](int, int thread) {
    if (thread != 2) {
      Work(1);
      others.fetch_add(1);
      return;
    }
    const int enough = others.load() + 2 * (kThreads - 1);
    slow.fetch_add(1);
    for (int i = 0; i < 5000; ++i) {
      if (others.load() >= std::min(enough, kTasks - slow.load())) break;
      Work(1);
    }
  });
  EXPECT_LE(slow.load(), 1 + kTasks / (1 + 2 * (kThreads - 1)));  // 8, if tasks were dealt out
}

// Three of four threads have nothing to do for a fifth of a second: three quarters of it, in the
// mean. Without a counter no clock is read.
TEST(ThreadPool, IdleTimeIsTheMeanOfAllThreads) {
  ThreadPool pool(4);
  double idle = 0;
  pool.CountIdle(&idle);
  const auto begin = std::chrono::steady_clock::now();
  pool.Run(4, [](int index, int) { Work(index == 0 ? 200 : 0); });
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
  EXPECT_GT(idle, 0.1);
  EXPECT_LT(idle, took.count());
  pool.CountIdle(nullptr);
  const double before = idle;
  pool.Run(4, [](int, int) { Work(1); });
  EXPECT_EQ(idle, before);
}

TEST(Numa, ListsOfCpusAreRead) {
  EXPECT_EQ(ParseCpuList("0-3,8"), (std::vector<int>{0, 1, 2, 3, 8}));
  EXPECT_EQ(ParseCpuList("5"), std::vector<int>{5});
  EXPECT_EQ(ParseCpuList("0-4095").size(), static_cast<size_t>(kMostListed));
  for (const char* wrong : {"", "a", "3-1", "-2", "1;2", "0-4096", "0-99999999999", "1-"}) {
    EXPECT_TRUE(ParseCpuList(wrong).empty()) << wrong;
  }
}

TEST(Numa, PiecesAreDealtInOrderAndInFull) {
  for (const int count : {1, 2, 3, 7}) {
    const std::vector<NumaNode> nodes = Nodes(count);
    int before = 0;
    for (int piece = 0; piece < 100; ++piece) {
      const int node = NodeOfPiece(piece, 100, nodes);
      EXPECT_TRUE(node == before || (node == before + 1 && FirstPiece(node, 100, nodes) == piece));
      before = node;
    }
    EXPECT_EQ(before, count - 1);
    EXPECT_EQ(FirstPiece(count, 100, nodes), 100);
  }
  EXPECT_EQ(FirstPiece(1, 100, {}), 100);
  EXPECT_EQ(NodeOfPiece(99, 100, {}), 0);
}

// A container may have most CPUs of one node and one of another: that one gets no half of the work.
TEST(Numa, NodesGetAsMuchAsTheyHaveCpus) {
  const std::vector<NumaNode> nodes = {{0, {0}}, {1, {4, 5, 6, 7, 8, 9, 10}}};
  EXPECT_EQ(FirstPiece(1, 64, nodes), 8);
  EXPECT_EQ(NodeOfPiece(7, 64, nodes), 0);
  EXPECT_EQ(NodeOfPiece(8, 64, nodes), 1);
  EXPECT_EQ(NodesOfThreads(nodes, 8).size(), 2U);
  // One thread is the first node's by its number, and the other has none.
  EXPECT_EQ(NodesOfThreads(nodes, 1).size(), 1U);
  EXPECT_TRUE(NodesOfThreads({}, 4).empty());
}

TEST(Numa, ProcessesOfOneHostShareItsNodes) {
  const std::vector<NumaNode> four = Nodes(4);
  const auto ids = [&four](int part, int parts) {
    std::vector<int> found;
    for (const NumaNode& node : NodesOfPart(four, part, parts)) found.push_back(node.id);
    return found;
  };
  EXPECT_EQ(ids(0, 1), (std::vector<int>{0, 1, 2, 3}));
  EXPECT_EQ(ids(1, 2), (std::vector<int>{2, 3}));
  EXPECT_EQ(ids(3, 4), std::vector<int>{3});
  EXPECT_EQ(ids(1, 8), std::vector<int>{0});
  EXPECT_EQ(ids(7, 8), std::vector<int>{3});
  EXPECT_TRUE(NodesOfPart({}, 1, 2).empty());
}

// Only nodes with CPUs of this process count, and one node is none.
TEST(Numa, NodesComeFromTheSystem) {
  const std::string root = testing::TempDir() + "quire_numa_" + std::to_string(getpid());
  const std::filesystem::path folder = root + "/sys/devices/system/node";
  const auto write = [&folder](const std::string& name, const std::string& text) {
    std::filesystem::create_directories((folder / name).parent_path());
    std::ofstream(folder / name) << text << "\n";
  };
  EXPECT_TRUE(ReadNumaNodes(root).empty());
  write("online", "0-2");
  write("node0/cpulist", "0-1023");
  write("node1/cpulist", "4000-4001");
  write("node2/cpulist", "");
  EXPECT_TRUE(ReadNumaNodes(root).empty());
  write("node2/cpulist", "0-1023");
  const std::vector<NumaNode> nodes = ReadNumaNodes(root);
  ASSERT_EQ(nodes.size(), 2U);
  EXPECT_EQ(nodes[1].id, 2);
  EXPECT_FALSE(nodes[1].cpus.empty());
  std::filesystem::remove_all(root);
}

// Node 0 is on every host: memory that is placed is as good as any other.
TEST(Numa, PlacedMemoryIsUsable) {
  Pages pages(1 << 20);
  if (!PlaceOnAllNodes(pages.data(), pages.size(), Nodes(1)) && errno == EPERM) {
    GTEST_SKIP() << "this container may not place memory";
  }
  EXPECT_TRUE(PlaceOnNode(pages.data() + 5, pages.size() - 5, Nodes(1)[0]));
  std::fill(pages.data(), pages.data() + pages.size(), std::byte{7});
  EXPECT_EQ(pages.data()[pages.size() - 1], std::byte{7});
}

}  // namespace
}  // namespace quire::kernels::cpu
