#include "kernels/cuda/emulate/emulated_runtime.h"

#include <algorithm>
#include <cstring>
#include <thread>

namespace quire::kernels::cuda::emulate {
namespace {

constexpr size_t kMaxStreams = 256;
constexpr size_t kMaxEvents = 65536;

template <class Id>
uint32_t At(Id id) {
  return static_cast<uint32_t>(id);
}

}  // namespace

runtime::Error EmulatedRuntime::Allocate(size_t bytes, void** device) {
  ++memory_calls_;
  *device = emulator_.memory().Allocate(bytes);
  if (*device != nullptr) return {};
  return "allocate: no " + std::to_string(bytes) + " bytes left on the emulated device";
}

runtime::Error EmulatedRuntime::Free(void* device) {
  ++memory_calls_;
  return emulator_.memory().Free(device) ? Error() : "free: not the begin of an allocation";
}

runtime::Error EmulatedRuntime::AllocateMapped(size_t bytes, void** host, void** device) {
  ++memory_calls_;
  *host = *device = emulator_.memory().AllocateOfHost(bytes);
  if (*host != nullptr) return {};
  return "allocate: no addresses left for " + std::to_string(bytes) + " bytes of mapped memory";
}

runtime::Error EmulatedRuntime::MemoryInfo(size_t* free, size_t* total) {
  *free = emulator_.memory().free();
  *total = emulator_.memory().total();
  return {};
}

runtime::Error EmulatedRuntime::RangeGranularity(size_t* bytes) {
  *bytes = DeviceMemory::kRangeGranularity;
  return {};
}

runtime::Error EmulatedRuntime::ReserveRange(size_t bytes, void** range) {
  ++memory_calls_;
  *range = emulator_.memory().ReserveRange(bytes);
  if (*range != nullptr) return {};
  return "reserve: no range of " + std::to_string(bytes) + " bytes on the emulated device";
}

runtime::Error EmulatedRuntime::MapRange(void* range, size_t offset, size_t bytes) {
  ++memory_calls_;
  if (emulator_.memory().MapRange(range, offset, bytes)) return {};
  return "map: no memory can come under " + std::to_string(bytes) + " bytes from " +
         std::to_string(offset) + " of the range on";
}

runtime::Error EmulatedRuntime::CreateStream(StreamId* stream) {
  ++memory_calls_;
  if (streams_.size() == kMaxStreams) return "create stream: 256 exist already";
  *stream = StreamId{static_cast<uint32_t>(streams_.size())};
  streams_.emplace_back();
  return {};
}

void* EmulatedRuntime::NativeStream(StreamId stream) {
  if (!CheckStream(stream).empty()) return nullptr;
  for (emulate::NativeStream& known : native_streams_) {
    if (known.id == stream) return &known;
  }
  const auto call = [](emulate::NativeStream* of, int (*poll)(void*), void* argument) {
    Work work;
    work.kind = Work::Kind::kCall;
    work.poll = poll;
    work.argument = argument;
    of->runtime->Enqueue(of->id, std::move(work));
  };
  const auto held = [](const emulate::NativeStream* of, const void* argument) {
    return of->runtime->Holds(argument);
  };
  return &native_streams_.emplace_back(emulate::NativeStream{call, held, this, stream});
}

bool EmulatedRuntime::Holds(const void* argument) const {
  const auto has = [argument](const Graph& graph) {
    return std::any_of(graph.nodes.begin(), graph.nodes.end(), [argument](const Node& node) {
      return node.work.kind == Work::Kind::kCall && node.work.argument == argument;
    });
  };
  return (captured_ != nullptr && has(*captured_)) ||
         std::any_of(graphs_.begin(), graphs_.end(),
                     [&has](const auto& graph) { return has(*graph.second); });
}

runtime::Error EmulatedRuntime::CreateEvent(EventId* event) {
  ++memory_calls_;
  if (events_.size() == kMaxEvents) return "create event: 65536 exist already";
  *event = EventId{static_cast<uint32_t>(events_.size())};
  events_.emplace_back();
  return {};
}

runtime::Error EmulatedRuntime::DestroyEvent(EventId event) {
  ++memory_calls_;
  if (Error error = CheckEvent(event); !error.empty()) return error;
  events_[At(event)].destroyed = true;
  return {};
}

runtime::Error EmulatedRuntime::Elapsed(EventId from, EventId to, double* seconds) {
  for (const EventId event : {from, to}) {
    if (Error error = CheckEvent(event); !error.empty()) return error;
    const Event& e = events_[At(event)];
    if (e.recorded == 0 || e.reached < e.recorded) return "read events: one was not reached";
  }
  *seconds = events_[At(to)].seconds - events_[At(from)].seconds;
  return {};
}

runtime::Error EmulatedRuntime::CheckStream(StreamId stream) const {
  return At(stream) < streams_.size() ? Error() : "no such stream";
}

runtime::Error EmulatedRuntime::CheckEvent(EventId event) const {
  const bool there = At(event) < events_.size() && !events_[At(event)].destroyed;
  return there ? Error() : "no such event";
}

runtime::Error EmulatedRuntime::Enqueue(StreamId stream, Work work) {
  if (Error error = CheckStream(stream); !error.empty()) return error;
  Stream& s = streams_[At(stream)];
  if (s.capture == 0) {
    s.queue.push_back(std::move(work));
    return {};
  }
  captured_->nodes.push_back({std::move(work), s.newest});
  s.newest = {captured_->nodes.size() - 1};
  return {};
}

runtime::Error EmulatedRuntime::Record(EventId event, StreamId stream) {
  if (Error error = CheckEvent(event); !error.empty()) return error;
  if (Error error = CheckStream(stream); !error.empty()) return error;
  Event& e = events_[At(event)];
  const Stream& s = streams_[At(stream)];
  e.capture = s.capture;
  if (s.capture != 0) {
    e.nodes = s.newest;
    return {};
  }
  Work work;
  work.kind = Work::Kind::kRecord;
  work.event = At(event);
  work.record = ++e.recorded;
  return Enqueue(stream, std::move(work));
}

runtime::Error EmulatedRuntime::Wait(StreamId stream, EventId event) {
  if (Error error = CheckEvent(event); !error.empty()) return error;
  if (Error error = CheckStream(stream); !error.empty()) return error;
  const Event& e = events_[At(event)];
  Stream& s = streams_[At(stream)];
  if (e.capture != 0 && e.capture == capture_) {
    if (s.capture == 0) s.newest.clear();
    s.capture = capture_;
    s.newest.insert(s.newest.end(), e.nodes.begin(), e.nodes.end());
    return {};
  }
  if (s.capture != 0) return "wait: a captured stream waits for an event outside its capture";
  Work work;
  work.kind = Work::Kind::kWait;
  work.event = At(event);
  work.record = e.recorded;
  return Enqueue(stream, std::move(work));
}

runtime::Error EmulatedRuntime::Query(EventId event, bool* done) {
  if (Error error = CheckEvent(event); !error.empty()) return error;
  RunSome();
  const Event& e = events_[At(event)];
  *done = e.reached >= e.recorded;
  return violations_.empty() ? Error() : violations_.front();
}

runtime::Error EmulatedRuntime::Synchronize(EventId event) {
  if (Error error = CheckEvent(event); !error.empty()) return error;
  const Event& e = events_[At(event)];
  while (e.reached < e.recorded) {
    if (!RunOne()) return "synchronize: the event waits for work that never runs";
  }
  RunSome();
  return violations_.empty() ? Error() : violations_.front();
}

runtime::Error EmulatedRuntime::Synchronize(StreamId stream) {
  if (Error error = CheckStream(stream); !error.empty()) return error;
  if (streams_[At(stream)].capture != 0) return "synchronize: the stream is being captured";
  while (!streams_[At(stream)].queue.empty()) {
    if (!RunOne()) return "synchronize: the stream waits for work that never runs";
  }
  streams_[At(stream)].running = 0;
  RunSome();
  return violations_.empty() ? Error() : violations_.front();
}

runtime::Error EmulatedRuntime::Copy(StreamId stream, void* to, const void* from, size_t bytes) {
  Work work;
  work.kind = Work::Kind::kCopy;
  work.to = to;
  work.from = from;
  work.bytes = bytes;
  for (const void* at : {static_cast<const void*>(to), from}) {
    const DeviceMemory& memory = emulator_.memory();
    if (bytes > 0 && memory.Owns(at) && !memory.Valid(memory.Offset(at), bytes)) {
      return "copy: " + std::to_string(bytes) + " bytes reach outside an allocation";
    }
  }
  return Enqueue(stream, std::move(work));
}

runtime::Error EmulatedRuntime::Fill(StreamId stream, void* to, uint8_t byte, size_t bytes) {
  Work work;
  work.kind = Work::Kind::kFill;
  work.to = to;
  work.byte = byte;
  work.bytes = bytes;
  const DeviceMemory& memory = emulator_.memory();
  if (bytes > 0 && (!memory.Owns(to) || !memory.Valid(memory.Offset(to), bytes))) {
    return "fill: " + std::to_string(bytes) + " bytes reach outside an allocation";
  }
  return Enqueue(stream, std::move(work));
}

runtime::Error EmulatedRuntime::Launch(StreamId stream, const runtime::KernelHandle& kernel,
                                       const runtime::LaunchShape& shape) {
  if (shape.params_bytes > runtime::kMaxParamsBytes) return "launch: parameters above 4096 bytes";
  if (shape.shared_bytes > shared_bytes_) {
    return std::string(kernel.name) + ": a block wants " + std::to_string(shape.shared_bytes) +
           " bytes of shared memory, this device has " + std::to_string(shared_bytes_);
  }
  Work work;
  work.kind = Work::Kind::kLaunch;
  work.kernel = kernel;
  work.shape = shape;
  const auto* params = static_cast<const unsigned char*>(shape.params);
  work.params.assign(params, params + shape.params_bytes);
  return Enqueue(stream, std::move(work));
}

runtime::Error EmulatedRuntime::BeginCapture(StreamId stream) {
  if (Error error = CheckStream(stream); !error.empty()) return error;
  if (capture_ != 0) return "capture: another one is under way";
  capture_ = ++captures_;
  capture_origin_ = At(stream);
  captured_ = std::make_shared<Graph>();
  streams_[At(stream)].capture = capture_;
  streams_[At(stream)].newest.clear();
  return {};
}

runtime::Error EmulatedRuntime::EndCapture(StreamId stream, GraphId* graph) {
  ++memory_calls_;
  if (capture_ == 0 || At(stream) != capture_origin_) return "capture: none began on this stream";
  // All that was captured must come before the origin's end.
  std::vector<char> joined(captured_->nodes.size(), 0);
  for (const size_t node : streams_[At(stream)].newest) joined[node] = 1;
  for (size_t i = captured_->nodes.size(); i-- > 0;) {
    if (joined[i] == 0) continue;
    for (const size_t before : captured_->nodes[i].after) joined[before] = 1;
  }
  for (Stream& s : streams_) s.capture = 0;
  capture_ = 0;
  const bool whole = std::find(joined.begin(), joined.end(), 0) == joined.end();
  std::shared_ptr<const Graph> ended = std::move(captured_);
  captured_ = nullptr;
  if (!whole) return "capture: work of another stream was never joined to the one that began it";
  *graph = GraphId{next_graph_};
  graphs_[next_graph_++] = std::move(ended);
  return {};
}

runtime::Error EmulatedRuntime::LaunchGraph(GraphId graph, StreamId stream) {
  const auto found = graphs_.find(At(graph));
  if (found == graphs_.end()) return "launch: no such graph";
  if (Error error = CheckStream(stream); !error.empty()) return error;
  if (streams_[At(stream)].capture != 0) return "launch: a graph inside a capture";
  Work work;
  work.kind = Work::Kind::kGraph;
  work.graph = found->second;
  work.done.assign(found->second->nodes.size(), 0);
  work.running.assign(found->second->nodes.size(), 0);
  return Enqueue(stream, std::move(work));
}

runtime::Error EmulatedRuntime::DestroyGraph(GraphId graph) {
  ++memory_calls_;
  return graphs_.erase(At(graph)) == 1 ? Error() : "destroy: no such graph";
}

bool EmulatedRuntime::Ready(const Work& work) const {
  return work.kind != Work::Kind::kWait || events_[work.event].reached >= work.record;
}

bool EmulatedRuntime::RunOne() {
  std::vector<size_t> ready;
  for (size_t i = 0; i < streams_.size(); ++i) {
    const Stream& s = streams_[i];
    if (!s.queue.empty() && Ready(s.queue.front())) ready.push_back(i);
  }
  if (ready.empty()) return false;
  Stream& s = streams_[ready[random_.Below(static_cast<uint32_t>(ready.size()))]];
  Work& work = s.queue.front();
  if (work.kind == Work::Kind::kGraph) {
    if (!RunNode(work)) return true;
    s.running = 0;
  } else if (!Do(work, s.running)) {
    return true;  // it waits for something outside, as a device would
  }
  s.queue.pop_front();
  return true;
}

void EmulatedRuntime::RunSome() {
  for (uint32_t n = random_.Below(4); n > 0 && RunOne(); --n) {
  }
}

bool EmulatedRuntime::RunNode(Work& launch) {
  std::vector<size_t> ready;
  const std::vector<Node>& nodes = launch.graph->nodes;
  for (size_t i = 0; i < nodes.size(); ++i) {
    bool may = launch.done[i] == 0;
    for (const size_t before : nodes[i].after) may = may && launch.done[before] != 0;
    if (may) ready.push_back(i);
  }
  if (ready.empty()) return true;
  const size_t node = ready[random_.Below(static_cast<uint32_t>(ready.size()))];
  Work work = nodes[node].work;
  const std::vector<size_t>& after = nodes[node].after;
  uint32_t running = after.size() == 1 ? launch.running[after.front()] : 0;
  if (!Do(work, running)) return false;
  launch.running[node] = running;
  launch.done[node] = 1;
  return std::find(launch.done.begin(), launch.done.end(), 0) == launch.done.end();
}

bool EmulatedRuntime::Do(Work& work, uint32_t& running) {
  const uint32_t before = running;
  // Work that is not a launch waits for the end of the launches before it; a record has no visible
  // effect.
  if (work.kind != Work::Kind::kRecord) running = 0;
  switch (work.kind) {
    case Work::Kind::kCopy:
      if (work.bytes > 0) memmove(work.to, work.from, work.bytes);
      return true;
    case Work::Kind::kFill:
      if (work.bytes > 0) memset(work.to, work.byte, work.bytes);
      return true;
    case Work::Kind::kLaunch: {
      work.shape.params = work.params.data();
      Report report = emulator_.Run(work.kernel, work.shape, random_.Next(), before);
      running = before == 0 ? report.first_block : before;
      seconds_ += launch_seconds_;
      counters_[work.kernel.name].Add(report.counters);
      for (std::string& v : report.violations) {
        if (violations_.size() < Emulator::kMaxViolations) violations_.push_back(std::move(v));
      }
      return true;
    }
    case Work::Kind::kRecord:
      events_[work.event].reached = std::max(events_[work.event].reached, work.record);
      events_[work.event].seconds = seconds_;
      return true;
    case Work::Kind::kCall:
      if (work.poll(work.argument) == 0) {
        std::this_thread::yield();
        return false;
      }
      seconds_ += call_seconds_;
      return true;
    case Work::Kind::kWait:
    case Work::Kind::kGraph:
      return true;
  }
  return true;
}

}  // namespace quire::kernels::cuda::emulate
