// The interfaces to time, threads, network, disk and randomness. Sessions (pipeline, dispatch,
// link, fleet, stream, engine, rpc) reach the outside only through these, so that a whole cluster
// can run on one thread and virtual time.
//
// Invariants:
// 1. All work of one Executor runs on one thread at a time, in order of due time, then of posting.
// 2. A callback never runs inside the call that registered it.
// 3. Durations and time points are whole microseconds since an arbitrary start and never run
// backwards.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "common/status.h"

namespace quire {

using Micros = int64_t;  // a time point of the monotonic clock, or a duration
inline constexpr Micros kMicrosPerMilli = 1000;
inline constexpr Micros kMicrosPerSecond = 1'000'000;

class Clock {
 public:
  virtual ~Clock() = default;
  virtual Micros Now() const = 0;           // monotonic
  virtual int64_t UnixSeconds() const = 0;  // wall time, for `created` and templates
};

using TimerId = uint64_t;  // 0 is none

class Executor {
 public:
  virtual ~Executor() = default;
  // Any thread.
  virtual void Post(std::function<void()> work) = 0;
  // Any thread. Runs at or after `due`.
  virtual TimerId PostAt(Micros due, std::function<void()> work) = 0;
  // Executor's thread only. True when the work will not run.
  virtual bool Cancel(TimerId timer) = 0;
  virtual const Clock& clock() const = 0;
};

// A two-way, ordered, reliable stream of frames (byte strings) to one peer.
//
// Owner: a session on its executor; every call and every callback happens there. The receiver must
// outlive the stream or be detached by destroying the stream.
class FrameStream {
 public:
  class Receiver {
   public:
    virtual ~Receiver() = default;
    virtual void OnFrame(std::string_view frame) = 0;
    // Called once; nothing follows. OK when the peer ended the stream in order.
    virtual void OnClosed(const absl::Status& status) = 0;
    // After a Write returned false: less than half of the limit waits now.
    virtual void OnWritable() {}
  };

  virtual ~FrameStream() = default;  // cancels the stream; no callback follows
  virtual void Start(Receiver* receiver) = 0;
  // Takes the frame in any case. False: more than the limit now waits; write no more until
  // OnWritable. A write that stays blocked for 5 s closes the stream.
  virtual bool Write(std::string frame) = 0;
  virtual size_t PendingBytes() const = 0;
  // Ends our side in order after what was written; OnClosed follows.
  virtual void Close() = 0;
};

// Dials frame streams. `target` is HOST:PORT. Never fails at once: errors come through OnClosed.
class Dialer {
 public:
  virtual ~Dialer() = default;
  virtual std::unique_ptr<FrameStream> Dial(const std::string& target) = 0;
  // Fetches the text bundle of `model_id` from a worker, at most max_bytes; `done` runs on the
  // executor.
  virtual void FetchTextBundle(const std::string& target, const std::string& model_id,
                               size_t max_bytes,
                               std::function<void(absl::StatusOr<std::string>)> done) = 0;
};

// The owner of work, and how much work it is likely to be.
struct WorkShare {
  std::string owner;  // a tenant; work with the same one shares its turns
  size_t bytes = 0;   // of input
  // The executor sets it when the work is no longer needed: it is then not begun. May be null.
  std::shared_ptr<const std::atomic<bool>> cancelled = nullptr;
};

// Work off the event loop (tokenising, templates, large messages).
class Background {
 public:
  virtual ~Background() = default;
  // Runs `work` on some thread, then `done` on the executor. False, and neither runs, when the
  // bounded queue is full. For the program's own work, which is small or rare.
  virtual bool Run(std::function<void()> work, std::function<void()> done) = 0;
  // The same for clients, whose tenants take turns by the work that they have had. `done` runs
  // whether the work was cancelled or not.
  virtual bool RunFor(const WorkShare& /*share*/, std::function<void()> work,
                      std::function<void()> done) {
    return Run(std::move(work), std::move(done));
  }
};

class Rng {
 public:
  virtual ~Rng() = default;
  virtual uint64_t Next() = 0;
};

class Files {
 public:
  virtual ~Files() = default;
  virtual absl::StatusOr<std::string> Read(const std::string& path, size_t max_bytes) = 0;
};

}  // namespace quire
