// How long work takes on the device itself: replays of a captured graph between two timed events.
//
// Launches and waits of the host count for nothing, however late the host looks. Called by the
// thread that owns the runtime, outside a capture; no other work may be in flight on the stream.
#pragma once

#include <algorithm>
#include <cmath>
#include <vector>

#include "kernels/cuda/runtime/runtime.h"

namespace quire::kernels::cuda::runtime {

inline constexpr int kLeastReplays = 50;
inline constexpr int kMostReplays = 1000;
inline constexpr double kLeastTimedSeconds = 0.002;  // of all replays of a round
// Work that takes longer than this is no kernel of a step: each round replays it once.
inline constexpr double kLongSeconds = 0.05;

struct DeviceTiming {
  int copies = 1;  // of the work in the graph, each with operands of its own
  int rounds = 5;  // their median is the result
};

namespace timer {

// As many replays as take long enough beside an event's resolution.
inline int ReplaysFor(double seconds) {
  if (seconds > kLongSeconds) return 1;
  const double wanted = std::ceil(kLeastTimedSeconds / std::max(seconds, 1e-7));
  return static_cast<int>(std::clamp<double>(wanted, kLeastReplays, kMostReplays));
}

struct Replays {
  Runtime& runtime;
  StreamId stream;
  GraphId graph;
  EventId begin{}, end{};

  // Seconds on the device of so many.
  Error Time(int count, double* seconds) const {
    Error error = runtime.Record(begin, stream);
    for (int i = 0; i < count && error.empty(); ++i) error = runtime.LaunchGraph(graph, stream);
    if (error.empty()) error = runtime.Record(end, stream);
    if (error.empty()) error = runtime.Synchronize(end);
    return error.empty() ? runtime.Elapsed(begin, end, seconds) : error;
  }

  // Seconds of one, in each of the rounds.
  Error Rounds(int rounds, std::vector<double>& took) const {
    double seconds = 0.0;
    for (int i = 0; i < 2; ++i) {  // the first one warms up
      if (Error error = Time(1, &seconds); !error.empty()) return error;
    }
    const int count = ReplaysFor(seconds);
    for (int i = 0; i < rounds; ++i) {
      if (Error error = Time(count, &seconds); !error.empty()) return error;
      took.push_back(seconds / count);
    }
    return {};
  }
};

inline Error Rounds(Runtime& runtime, StreamId stream, GraphId graph, int rounds,
                    std::vector<double>& took) {
  Replays replays{runtime, stream, graph};
  Error error = runtime.CreateTimedEvent(&replays.begin);
  if (error.empty()) error = runtime.CreateTimedEvent(&replays.end);
  if (error.empty()) error = replays.Rounds(rounds, took);
  for (const EventId event : {replays.begin, replays.end}) {
    if (error.empty()) error = runtime.DestroyEvent(event);
  }
  return error;
}

}  // namespace timer

// Seconds of one piece of work. `work(copy)` queues it on the stream, for copy in [0, copies): with
// operands that together exceed the device's caches, each replay reads them from memory. It runs
// once uncaptured, since a first launch may load code, which a capture forbids.
template <class Work>
Error TimeOnDevice(Runtime& runtime, StreamId stream, const DeviceTiming& timing, const Work& work,
                   double* seconds) {
  if (Error error = work(0); !error.empty()) return error;
  if (Error error = runtime.Synchronize(stream); !error.empty()) return error;
  if (Error error = runtime.BeginCapture(stream); !error.empty()) return error;
  Error failed;
  for (int copy = 0; copy < timing.copies && failed.empty(); ++copy) failed = work(copy);
  GraphId graph{};
  Error error = runtime.EndCapture(stream, &graph);
  if (!error.empty()) return failed.empty() ? error : failed;
  std::vector<double> took;
  if (failed.empty()) failed = timer::Rounds(runtime, stream, graph, timing.rounds, took);
  error = runtime.DestroyGraph(graph);
  if (!failed.empty()) return failed;
  if (!error.empty()) return error;
  std::nth_element(took.begin(), took.begin() + took.size() / 2, took.end());
  *seconds = took[took.size() / 2] / timing.copies;
  return {};
}

}  // namespace quire::kernels::cuda::runtime
