#include <atomic>
#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/signal_set.hpp>
#include <boost/asio/steady_timer.hpp>
#include <chrono>
#include <unordered_map>
#include <utility>

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

struct AsioExecutor::State {
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
