#include <atomic>
#include <boost/asio/bind_allocator.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/signal_set.hpp>
#include <boost/asio/steady_timer.hpp>
#include <chrono>
#include <cstddef>
#include <deque>
#include <limits>
#include <utility>

#include "absl/container/btree_map.h"
#include "absl/container/flat_hash_map.h"
#include "common/check.h"
#include "common/runtime/asio_executor.h"

namespace quire {

namespace asio = boost::asio;

Micros RealClock::Now() const {
  const auto since = std::chrono::steady_clock::now().time_since_epoch();
  return std::chrono::duration_cast<std::chrono::microseconds>(since).count();
}

int64_t RealClock::UnixSeconds() const {
  const auto since = std::chrono::system_clock::now().time_since_epoch();
  return std::chrono::duration_cast<std::chrono::seconds>(since).count();
}

namespace {

// One posted handler's memory. Asio frees it before it calls the handler, so that it is free
// whenever another call may come.
struct BellMemory {
  static constexpr size_t kBytes = 256;
  alignas(std::max_align_t) std::byte bytes[kBytes];
  bool used = false;
};

template <class T>
struct BellAllocator {
  using value_type = T;
  explicit BellAllocator(BellMemory& of) : memory(&of) {}
  template <class U>
  BellAllocator(const BellAllocator<U>& other) : memory(other.memory) {}  // NOLINT

  T* allocate(size_t count) {
    QUIRE_CHECK(!memory->used && count * sizeof(T) <= BellMemory::kBytes);
    memory->used = true;
    return reinterpret_cast<T*>(memory->bytes);
  }
  void deallocate(T*, size_t) { memory->used = false; }
  template <class U>
  bool operator==(const BellAllocator<U>& other) const {
    return memory == other.memory;
  }

  BellMemory* memory;
};

struct Bell {
  std::function<void()> work;
  BellMemory memory;
  std::atomic<bool> rung{false};
};

constexpr Micros kNever = std::numeric_limits<Micros>::max();

}  // namespace

struct AsioExecutor::State {
  using Work = std::function<void()>;

  std::deque<Bell> bells;  // outlive the context, which may hold their handlers; before Run
  asio::io_context context{1};
  asio::executor_work_guard<asio::io_context::executor_type> guard{context.get_executor()};
  std::atomic<TimerId> last_id{0};
  std::unique_ptr<asio::signal_set> signals;

  // Loop's thread only.
  absl::btree_map<std::pair<Micros, TimerId>, Work> timers;  // in the order in which they run
  absl::flat_hash_map<TimerId, Micros> dues;                 // their keys; never iterated
  // One for all of them: at the first one's time, or earlier, where that one was cancelled. Most
  // timers are, and a request has several.
  asio::steady_timer alarm{context};
  Micros alarm_at = kNever;
  const RealClock clock{};

  void Arm(TimerId id, Micros due, Work work) {
    timers.emplace(std::pair(due, id), std::move(work));
    dues.emplace(id, due);
    SetAlarm();
  }

  bool Disarm(TimerId id) {
    const auto due = dues.find(id);
    if (due == dues.end()) return false;
    const auto timer = timers.find({due->second, id});
    const Work dropped = std::move(timer->second);  // ends last: it may use the executor
    timers.erase(timer);
    dues.erase(due);
    return true;
  }

  // What they hold may use the executor when it is destroyed, and sockets of the context.
  void DropTimers() {
    dues.clear();
    std::exchange(timers, {});
  }

  void SetAlarm() {
    if (timers.empty() || timers.begin()->first.first >= alarm_at) return;
    alarm_at = timers.begin()->first.first;
    alarm.expires_at(std::chrono::steady_clock::time_point(std::chrono::microseconds(alarm_at)));
    alarm.async_wait([this](const boost::system::error_code& error) {
      if (!error) RunDue();
    });
  }

  // Those that this work sets wait for the next turn of the loop.
  void RunDue() {
    alarm_at = kNever;
    const Micros now = clock.Now();
    const TimerId last = last_id;
    while (!timers.empty() && !context.stopped()) {
      const auto first = timers.begin();
      const auto [due, id] = first->first;
      if (due > now || id > last) break;
      const Work work = std::move(first->second);
      timers.erase(first);
      dues.erase(id);
      work();
    }
    SetAlarm();
  }

  void WaitForSignal(std::function<void(int)> handler) {
    signals->async_wait([this, handler](const boost::system::error_code& error, int signal) {
      if (error) return;
      WaitForSignal(handler);
      handler(signal);
    });
  }
};

AsioExecutor::AsioExecutor() : state_(std::make_unique<State>()) {}
AsioExecutor::~AsioExecutor() { state_->DropTimers(); }

void AsioExecutor::Post(std::function<void()> work) {
  asio::post(state_->context, std::move(work));
}

std::function<void()> AsioExecutor::MakeBell(std::function<void()> work) {
  Bell& bell = state_->bells.emplace_back();
  bell.work = std::move(work);
  return [state = state_.get(), &bell] {
    if (bell.rung.exchange(true)) return;
    asio::post(state->context, asio::bind_allocator(BellAllocator<std::byte>(bell.memory), [&bell] {
                 bell.rung.store(false);
                 bell.work();
               }));
  };
}

TimerId AsioExecutor::PostAt(Micros due, std::function<void()> work) {
  const TimerId id = ++state_->last_id;
  if (state_->context.get_executor().running_in_this_thread()) {
    state_->Arm(id, due, std::move(work));
  } else {
    asio::post(state_->context, [state = state_.get(), id, due, work = std::move(work)]() mutable {
      state->Arm(id, due, std::move(work));
    });
  }
  return id;
}

bool AsioExecutor::Cancel(TimerId timer) { return state_->Disarm(timer); }

void AsioExecutor::Run() { state_->context.run(); }
void AsioExecutor::Stop() { state_->context.stop(); }
boost::asio::io_context& AsioExecutor::context() { return state_->context; }

void AsioExecutor::OnTerminationSignal(std::function<void(int signal)> handler) {
  state_->signals = std::make_unique<asio::signal_set>(state_->context, SIGTERM, SIGINT);
  state_->WaitForSignal(std::move(handler));
}

}  // namespace quire
