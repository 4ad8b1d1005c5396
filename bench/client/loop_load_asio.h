// A load whose calls are all on one thread of its own.
#pragma once

#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/post.hpp>
#include <cstdint>
#include <thread>

#include "bench/client/load.h"
#include "common/host_port.h"

namespace quire::bench {

class LoopLoad : public Load {
 public:
  LoopLoad(const LoadOptions& load_options, Tally& counts)
      : options(load_options), tally(counts), guard_(context_.get_executor()) {
    const HostPort target = *ParseHostPort(options.target);
    endpoint = {boost::asio::ip::make_address(target.host), target.port};
  }

  void Next() override {
    boost::asio::post(context_, [this] { Begin(); });
  }

  const LoadOptions& options;
  Tally& tally;
  boost::asio::ip::tcp::endpoint endpoint;

 protected:
  // On the thread of the calls.
  virtual void BeginCall(int64_t number) = 0;
  void Begin() {
    const int64_t number = tally.Begin();
    if (number >= 0) BeginCall(number);
  }
  // For the constructor and the destructor of the load itself, whose calls the thread runs.
  void StartThread() {
    thread_ = std::thread([this] { context_.run(); });
  }
  void StopThread() {
    context_.stop();
    thread_.join();
  }

  boost::asio::io_context context_{1};

 private:
  boost::asio::executor_work_guard<boost::asio::io_context::executor_type> guard_;
  std::thread thread_;
};

}  // namespace quire::bench
