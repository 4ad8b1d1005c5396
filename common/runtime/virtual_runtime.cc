#include "common/runtime/virtual_runtime.h"

#include <algorithm>
#include <deque>
#include <optional>
#include <set>
#include <tuple>
#include <utility>

#include "common/check.h"

namespace quire {

uint64_t VirtualRng::Next() {
  state_ += 0x9E3779B97F4A7C15ull;
  uint64_t z = state_;
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ull;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBull;
  return z ^ (z >> 31);
}

namespace {

class VirtualClock final : public Clock {
 public:
  Micros Now() const override { return now_; }
  int64_t UnixSeconds() const override { return kStartUnixSeconds + now_ / kMicrosPerSecond; }
  void AdvanceTo(Micros now) {
    QUIRE_CHECK_MSG(now >= now_, "virtual time never runs backwards");
    now_ = now;
  }

 private:
  static constexpr int64_t kStartUnixSeconds = 1'700'000'000;
  Micros now_ = kMicrosPerSecond;  // not 0, which means "never" in several places
};

class VirtualExecutor final : public Executor {
 public:
  explicit VirtualExecutor(VirtualClock& clock) : clock_(clock) {}

  void Post(std::function<void()> work) override { PostAt(clock_.Now(), std::move(work)); }

  TimerId PostAt(Micros due, std::function<void()> work) override {
    const TimerId id = ++last_id_;
    const Key key{std::max(due, clock_.Now()), id};
    queue_.emplace(key, std::move(work));
    due_by_id_.emplace(id, key.first);
    return id;
  }

  bool Cancel(TimerId timer) override {
    const auto it = due_by_id_.find(timer);
    if (it == due_by_id_.end()) return false;
    queue_.erase(Key{it->second, timer});
    due_by_id_.erase(it);
    return true;
  }

  const Clock& clock() const override { return clock_; }

  bool Idle() const { return queue_.empty(); }
  Micros NextDue() const { return queue_.begin()->first.first; }

  void RunNext() {
    auto node = queue_.extract(queue_.begin());
    due_by_id_.erase(node.key().second);
    clock_.AdvanceTo(node.key().first);
    node.mapped()();
  }

 private:
  using Key = std::pair<Micros, TimerId>;
  VirtualClock& clock_;
  TimerId last_id_ = 0;
  std::map<Key, std::function<void()>> queue_;
  std::map<TimerId, Micros> due_by_id_;
};

}  // namespace

// Two ends share one Pipe; it lives until both ends are gone and no frame is under way.
struct VirtualWorld::State {
  struct Pipe;
  class End;

  VirtualClock clock;
  VirtualExecutor executor{clock};
  Micros min_delay = 50;
  Micros max_delay = 200;
  Micros min_close_delay = 0;
  Micros max_close_delay = 0;  // 0: closes are not delayed
  std::map<std::string, Accept> listeners;
  std::map<std::string, BundleSource> bundles;
  std::map<std::string, bool> held;
  std::set<std::tuple<std::string, std::string, int>> held_paths;  // dialer, target, writing end
  std::vector<std::weak_ptr<Pipe>> pipes;                          // in order of dialling
};

// One direction of a pipe delivers its frames in order: a frame is never due before the one ahead
// of it.
struct VirtualWorld::State::Pipe : std::enable_shared_from_this<VirtualWorld::State::Pipe> {
  static constexpr size_t kPendingLimit = 4u << 20;
  struct Direction {
    std::deque<std::string> waiting;  // while the link is held
    size_t pending_bytes = 0;
    Micros last_due = 0;
    bool wants_writable = false;
    std::optional<absl::Status> close;  // behind all frames of this direction
  };
  VirtualWorld* world = nullptr;
  State* state = nullptr;
  std::string target;
  std::string dialer;
  FrameStream::Receiver* receivers[2] = {nullptr, nullptr};
  bool alive[2] = {true, true};     // the end object exists
  bool closed[2] = {false, false};  // OnClosed has been or will be called at this end
  Direction directions[2];          // [i]: frames that end i wrote

  void Schedule(int from, std::string frame) {
    Direction& d = directions[from];
    const Micros span = state->max_delay - state->min_delay + 1;
    Micros due = state->clock.Now() + state->min_delay +
                 static_cast<Micros>(world->rng().Next() % static_cast<uint64_t>(span));
    due = std::max(due, d.last_due);
    d.last_due = due;
    auto self = shared_from_this();
    state->executor.PostAt(due, [self, from, frame = std::move(frame)]() mutable {
      self->Deliver(from, std::move(frame));
    });
  }

  void Deliver(int from, std::string frame) {
    Direction& d = directions[from];
    const int to = 1 - from;
    if (closed[to] || !alive[to]) {
      d.pending_bytes -= std::min(d.pending_bytes, frame.size());
      return;
    }
    if (Held(from) || !d.waiting.empty()) {  // those that were held go first
      d.waiting.push_back(std::move(frame));
      return;
    }
    Hand(from, std::move(frame));
  }

  bool Held(int from) const {
    const auto held = state->held.find(target);
    if (held != state->held.end() && held->second) return true;
    return state->held_paths.contains({dialer, target, from});
  }

  void Hand(int from, std::string frame) {
    Direction& d = directions[from];
    const int to = 1 - from;
    d.pending_bytes -= std::min(d.pending_bytes, frame.size());
    if (receivers[to] != nullptr) receivers[to]->OnFrame(frame);
    if (d.wants_writable && d.pending_bytes < kPendingLimit / 2 && alive[from] && !closed[from]) {
      d.wants_writable = false;
      if (receivers[from] != nullptr) receivers[from]->OnWritable();
    }
  }

  void Release() {
    auto self = shared_from_this();
    state->executor.PostAt(state->clock.Now() + state->min_delay, [self] {
      for (int from : {0, 1}) {
        std::deque<std::string>& frames = self->directions[from].waiting;
        while (!frames.empty() && !self->Held(from)) {
          std::string frame = std::move(frames.front());
          frames.pop_front();
          if (self->alive[1 - from] && !self->closed[1 - from]) self->Hand(from, std::move(frame));
        }
        if (self->directions[from].close && frames.empty() && !self->Held(from)) {
          self->CloseTowards(1 - from, *self->directions[from].close);
        }
      }
    });
  }

  // The same, when the other end does not know of it yet.
  void CloseLater(int to, absl::Status status) {
    if (closed[to] || directions[1 - to].close) return;
    if (state->max_close_delay == 0) return CloseTowards(to, std::move(status));
    Direction& d = directions[1 - to];
    d.close = std::move(status);
    const Micros span = state->max_close_delay - state->min_close_delay + 1;
    const Micros delay = state->min_close_delay +
                         static_cast<Micros>(world->rng().Next() % static_cast<uint64_t>(span));
    d.last_due = std::max(d.last_due, state->clock.Now() + delay);
    state->executor.PostAt(d.last_due, [self = shared_from_this(), to] {
      Direction& way = self->directions[1 - to];
      if (self->Held(1 - to) || !way.waiting.empty()) return;  // Release brings it
      self->CloseTowards(to, *way.close);
    });
  }

  // Reports the end of the stream to end `to`, behind the frames under way to it.
  void CloseTowards(int to, absl::Status status) {
    if (closed[to]) return;
    closed[to] = true;
    auto self = shared_from_this();
    state->executor.PostAt(state->clock.Now() + state->min_delay,
                           [self, to, status = std::move(status)] {
                             if (self->alive[to] && self->receivers[to] != nullptr) {
                               self->receivers[to]->OnClosed(status);
                             }
                           });
  }
};

class VirtualWorld::State::End final : public FrameStream {
 public:
  End(std::shared_ptr<Pipe> pipe, int side) : pipe_(std::move(pipe)), side_(side) {}
  ~End() override {
    pipe_->alive[side_] = false;
    pipe_->receivers[side_] = nullptr;
    pipe_->closed[side_] = true;
    pipe_->CloseLater(1 - side_, absl::CancelledError("the peer cancelled the stream"));
  }
  void Start(Receiver* receiver) override { pipe_->receivers[side_] = receiver; }
  bool Write(std::string frame) override {
    Pipe::Direction& d = pipe_->directions[side_];
    if (pipe_->closed[side_]) return true;  // the frame goes nowhere, as on a broken connection
    d.pending_bytes += frame.size();
    pipe_->Schedule(side_, std::move(frame));
    if (d.pending_bytes <= Pipe::kPendingLimit) return true;
    d.wants_writable = true;
    return false;
  }
  size_t PendingBytes() const override { return pipe_->directions[side_].pending_bytes; }
  void Close() override {
    const Micros last = std::max(pipe_->directions[side_].last_due, pipe_->state->clock.Now());
    auto pipe = pipe_;
    const int side = side_;
    pipe_->state->executor.PostAt(last, [pipe, side] {
      pipe->CloseLater(1 - side, absl::OkStatus());
      pipe->CloseTowards(side, absl::OkStatus());
    });
  }

 private:
  std::shared_ptr<Pipe> pipe_;
  int side_;
};

namespace {

// A dialled target without a listener: closes as a refused connection does.
class RefusedStream final : public FrameStream {
 public:
  explicit RefusedStream(Executor& executor)
      : executor_(executor), alive_(std::make_shared<bool>(true)) {}
  ~RefusedStream() override { *alive_ = false; }
  void Start(Receiver* receiver) override {
    executor_.Post([receiver, alive = alive_] {
      if (*alive) receiver->OnClosed(absl::UnavailableError("connection refused"));
    });
  }
  bool Write(std::string) override { return true; }
  size_t PendingBytes() const override { return 0; }
  void Close() override {}

 private:
  Executor& executor_;
  std::shared_ptr<bool> alive_;
};

}  // namespace

VirtualWorld::VirtualWorld(uint64_t seed) : rng_(seed), state_(std::make_unique<State>()) {}
VirtualWorld::~VirtualWorld() = default;

Clock& VirtualWorld::clock() { return state_->clock; }
Executor& VirtualWorld::executor() { return state_->executor; }
bool VirtualWorld::Idle() const { return state_->executor.Idle(); }
void VirtualWorld::Trace(std::string line) { trace_.push_back(std::move(line)); }

void VirtualWorld::Listen(const std::string& target, Accept accept) {
  state_->listeners[target] = std::move(accept);
}
void VirtualWorld::StopListening(const std::string& target) { state_->listeners.erase(target); }
void VirtualWorld::ServeTextBundle(const std::string& target, BundleSource source) {
  state_->bundles[target] = std::move(source);
}

void VirtualWorld::SetDelay(Micros min_delay, Micros max_delay) {
  QUIRE_CHECK(min_delay >= 0 && max_delay >= min_delay);
  state_->min_delay = min_delay;
  state_->max_delay = max_delay;
}

void VirtualWorld::SetCloseDelay(Micros min_delay, Micros max_delay) {
  QUIRE_CHECK(min_delay >= 0 && max_delay >= min_delay);
  state_->min_close_delay = min_delay;
  state_->max_close_delay = max_delay;
}

void VirtualWorld::CutLinks(const std::string& target) {
  std::erase_if(state_->pipes, [](const auto& pipe) { return pipe.expired(); });
  for (const auto& weak : state_->pipes) {
    auto pipe = weak.lock();
    if (pipe == nullptr || pipe->target != target) continue;
    for (int to : {0, 1}) pipe->CloseTowards(to, absl::UnavailableError("connection reset"));
  }
}

void VirtualWorld::HoldLinks(const std::string& target, bool held) {
  state_->held[target] = held;
  if (held) return;
  for (const auto& weak : state_->pipes) {
    if (auto pipe = weak.lock(); pipe != nullptr && pipe->target == target) pipe->Release();
  }
}

void VirtualWorld::HoldPath(const std::string& dialer, const std::string& target, Way way,
                            bool held) {
  const int from = way == Way::kToTarget ? 0 : 1;
  if (held) {
    state_->held_paths.insert({dialer, target, from});
    return;
  }
  if (state_->held_paths.erase({dialer, target, from}) == 0) return;
  for (const auto& weak : state_->pipes) {
    auto pipe = weak.lock();
    if (pipe != nullptr && pipe->target == target && pipe->dialer == dialer) pipe->Release();
  }
}

size_t VirtualWorld::RunUntil(Micros until, const std::function<bool()>& done) {
  size_t count = 0;
  VirtualExecutor& executor = state_->executor;
  while (!executor.Idle() && executor.NextDue() <= until) {
    if (done && done()) return count;
    executor.RunNext();
    ++count;
  }
  if (executor.Idle() || executor.NextDue() > until) {
    if (!(done && done()) && until > state_->clock.Now()) state_->clock.AdvanceTo(until);
  }
  return count;
}

std::unique_ptr<Dialer> VirtualWorld::MakeDialer(const std::string& name) {
  class WorldDialer final : public Dialer {
   public:
    WorldDialer(VirtualWorld& world, std::string name) : world_(world), name_(std::move(name)) {}
    std::unique_ptr<FrameStream> Dial(const std::string& target) override {
      State& state = *world_.state_;
      if (!state.listeners.contains(target)) {
        return std::make_unique<RefusedStream>(state.executor);
      }
      auto pipe = std::make_shared<State::Pipe>();
      pipe->world = &world_;
      pipe->state = &state;
      pipe->target = target;
      pipe->dialer = name_;
      state.pipes.push_back(pipe);
      state.executor.PostAt(state.clock.Now() + state.min_delay, [this, pipe, target] {
        const auto listener = world_.state_->listeners.find(target);
        auto far_end = std::make_unique<State::End>(pipe, 1);
        if (listener != world_.state_->listeners.end()) listener->second(std::move(far_end));
      });
      return std::make_unique<State::End>(pipe, 0);
    }
    void FetchTextBundle(const std::string& target, const std::string& model_id, size_t max_bytes,
                         std::function<void(absl::StatusOr<std::string>)> done) override {
      State& state = *world_.state_;
      state.executor.PostAt(state.clock.Now() + state.min_delay, [this, target, model_id, max_bytes,
                                                                  done = std::move(done)] {
        const auto source = world_.state_->bundles.find(target);
        if (source == world_.state_->bundles.end()) {
          done(absl::UnavailableError("connection refused"));
          return;
        }
        absl::StatusOr<std::string> bundle = source->second(model_id);
        if (bundle.ok() && bundle->size() > max_bytes) {
          bundle = absl::ResourceExhaustedError("the text bundle is larger than the limit");
        }
        done(std::move(bundle));
      });
    }

   private:
    VirtualWorld& world_;
    const std::string name_;
  };
  return std::make_unique<WorldDialer>(*this, name);
}

}  // namespace quire
