// The runtime without a device: work waits in its streams until the host waits for it, and then
// runs in any order that streams and events permit.
//
// Owned by a test or an emulated rank; one thread. It uses all the freedom that the interface
// leaves, so that host code cannot rely on more. Nothing runs when it is called, streams overtake
// each other, a copy reads host memory late, graphs run their nodes in any order that their edges
// permit, and a kernel begins before the previous one has ended.
#pragma once

#include <deque>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "kernels/cuda/emulate/emulator.h"
#include "kernels/cuda/emulate/random.h"
#include "kernels/cuda/runtime/runtime.h"

namespace quire::kernels::cuda::emulate {

// A stream as NativeStream returns it. A replacement for a library of the device queues its work
// with `call`: `poll(argument)` is called, when the stream has come so far, until it returns 1.
// Every launch of a graph that captured it may call it again, and it then starts from the
// beginning.
struct NativeStream {
  void (*call)(NativeStream* stream, int (*poll)(void* argument), void* argument);
  // Whether a graph, or a capture under way, holds a call with that argument.
  bool (*held)(const NativeStream* stream, const void* argument);
  class EmulatedRuntime* runtime;
  runtime::StreamId id;
};

class EmulatedRuntime : public runtime::Runtime {
 public:
  using Error = runtime::Error;
  using StreamId = runtime::StreamId;
  using EventId = runtime::EventId;
  using GraphId = runtime::GraphId;

  explicit EmulatedRuntime(uint64_t seed, Checks checks = Checks::kAll)
      : emulator_(checks), random_(seed) {}

  Error Allocate(size_t bytes, void** device) override;
  Error Free(void* device) override;
  Error AllocateMapped(size_t bytes, void** host, void** device) override;
  Error FreeMapped(void* host) override { return Free(host); }
  uint32_t SharedBytesPerBlock() const override { return shared_bytes_; }
  Error MemoryInfo(size_t* free, size_t* total) override;
  Error RangeGranularity(size_t* bytes) override;
  Error ReserveRange(size_t bytes, void** range) override;
  Error MapRange(void* range, size_t offset, size_t bytes) override;
  Error FreeRange(void* range) override { return Free(range); }
  Error CreateStream(StreamId* stream) override;
  void* NativeStream(StreamId stream) override;
  Error CreateEvent(EventId* event) override;
  Error CreateTimedEvent(EventId* event) override { return CreateEvent(event); }
  Error Elapsed(EventId from, EventId to, double* seconds) override;
  Error DestroyEvent(EventId event) override;
  Error Record(EventId event, StreamId stream) override;
  Error Wait(StreamId stream, EventId event) override;
  Error Query(EventId event, bool* done) override;
  Error Synchronize(EventId event) override;
  Error Synchronize(StreamId stream) override;
  Error Copy(StreamId stream, void* to, const void* from, size_t bytes) override;
  Error Fill(StreamId stream, void* to, uint8_t byte, size_t bytes) override;
  Error Launch(StreamId stream, const runtime::KernelHandle& kernel,
               const runtime::LaunchShape& shape) override;
  Error BeginCapture(StreamId stream) override;
  Error EndCapture(StreamId stream, GraphId* graph) override;
  Error LaunchGraph(GraphId graph, StreamId stream) override;
  Error DestroyGraph(GraphId graph) override;

  // Less shared memory for a block than the device normally has: a launch that needs more is
  // refused, as CUDA refuses it.
  void LimitShared(uint32_t bytes) { shared_bytes_ = bytes; }
  // Less memory than the device normally has.
  void LimitMemory(size_t total) { emulator_.memory().Limit(total); }
  // The device's clock, which timed events read, moves by so much with each launch of a kernel, and
  // with each call of a library.
  void SetTimes(double launch_seconds, double call_seconds) {
    launch_seconds_ = launch_seconds;
    call_seconds_ = call_seconds;
  }
  // Calls that allocate or free memory on a real device: allocations, ranges, captured graphs,
  // streams, events, and the ends of these.
  uint64_t memory_calls() const { return memory_calls_; }

  // What ran so far, by kernel.
  const std::map<std::string, Counters>& counters() const { return counters_; }
  void ClearCounters() { counters_.clear(); }
  const std::vector<std::string>& violations() const { return violations_; }

 private:
  struct Graph;
  struct Work {
    enum class Kind : uint8_t { kCopy, kFill, kLaunch, kRecord, kWait, kGraph, kCall };
    Kind kind = Kind::kCopy;
    void* to = nullptr;
    const void* from = nullptr;
    size_t bytes = 0;
    uint8_t byte = 0;
    runtime::KernelHandle kernel{};
    runtime::LaunchShape shape;
    std::vector<unsigned char> params;
    int (*poll)(void* argument) = nullptr;
    void* argument = nullptr;
    uint32_t event = 0;
    uint64_t record = 0;  // the count of Records that a wait is for, or that this one is
    std::shared_ptr<const Graph> graph;  // of this runtime, and of launches that are under way
    std::vector<char> done;              // by node of the graph
    std::vector<uint32_t> running;       // by node, as Stream::running behind it
  };
  struct Node {
    Work work;
    std::vector<size_t> after;
  };
  struct Graph {
    std::vector<Node> nodes;
  };
  struct Stream {
    std::deque<Work> queue;
    uint64_t capture = 0;        // 0: none
    std::vector<size_t> newest;  // nodes that its next captured work comes after
    // The first block of the oldest launch that may still run when the next one begins: launches
    // that follow each other directly overlap. 0: all have ended.
    uint32_t running = 0;
  };
  struct Event {
    uint64_t recorded = 0;
    uint64_t reached = 0;
    uint64_t capture = 0;  // of its last Record
    std::vector<size_t> nodes;
    double seconds = 0.0;  // the device's time at its last Record
    bool destroyed = false;
  };

  Error Enqueue(StreamId stream, Work work);
  Error CheckStream(StreamId stream) const;
  Error CheckEvent(EventId event) const;
  bool Holds(const void* argument) const;
  bool Ready(const Work& work) const;
  // Runs one piece of work that may run, drawn at random; false when there is none.
  bool RunOne();
  void RunSome();
  // One node of a graph. True when all have run.
  bool RunNode(Work& launch);
  // False for a call that must be repeated. `running` is the state in front of the work, and
  // becomes the state behind it.
  bool Do(Work& work, uint32_t& running);

  Emulator emulator_;
  Random random_;
  std::vector<Stream> streams_;
  std::deque<emulate::NativeStream> native_streams_;
  std::vector<Event> events_;
  std::map<uint32_t, std::shared_ptr<const Graph>> graphs_;
  uint32_t next_graph_ = 1;
  uint64_t memory_calls_ = 0;
  double seconds_ = 0.0;                               // the device's clock
  double launch_seconds_ = 0.1, call_seconds_ = 0.05;  // a library is worth its calls
  uint32_t shared_bytes_ = Emulator::kMaxSharedBytes;
  // The one capture under way.
  uint64_t capture_ = 0;
  uint64_t captures_ = 0;
  uint32_t capture_origin_ = 0;
  std::shared_ptr<Graph> captured_;
  std::map<std::string, Counters> counters_;
  std::vector<std::string> violations_;
};

}  // namespace quire::kernels::cuda::emulate
