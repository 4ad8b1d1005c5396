#include <atomic>
#include <boost/asio/bind_allocator.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/signal_set.hpp>
#include <boost/asio/steady_timer.hpp>
#include <chrono>
#include <cstddef>
#include <deque>
#include <unordered_map>
#include <utility>

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

}  // namespace

struct AsioExecutor::State {
  std::deque<Bell> bells;  // outlive the context, which may hold their handlers; before Run
  asio::io_context context{1};
  asio::executor_work_guard<asio::io_context::executor_type> guard{context.get_executor()};
  std::atomic<TimerId> last_id{0};
  // Loop's thread only. Looked up by id, never iterated.
  std::unordered_map<TimerId, std::unique_ptr<asio::steady_timer>> timers;
  std::unique_ptr<asio::signal_set> signals;

  void Arm(TimerId id, Micros due, std::function<void()> work) {
    auto timer = std::make_unique<asio::steady_timer>(
        context, std::chrono::steady_clock::time_point(std::chrono::microseconds(due)));
    asio::steady_timer& t = *timer;
    timers.emplace(id, std::move(timer));
    t.async_wait([this, id, work = std::move(work)](const boost::system::error_code& error) {
      if (error || timers.erase(id) == 0) return;
      work();
    });
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
AsioExecutor::~AsioExecutor() = default;

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

bool AsioExecutor::Cancel(TimerId timer) { return state_->timers.erase(timer) > 0; }

void AsioExecutor::Run() { state_->context.run(); }
void AsioExecutor::Stop() { state_->context.stop(); }
boost::asio::io_context& AsioExecutor::context() { return state_->context; }

void AsioExecutor::OnTerminationSignal(std::function<void(int signal)> handler) {
  state_->signals = std::make_unique<asio::signal_set>(state_->context, SIGTERM, SIGINT);
  state_->WaitForSignal(std::move(handler));
}

}  // namespace quire
