// The edge over a fake pipeline, its event loop on a thread of its own, for tests that speak to it
// by sockets.
#pragma once

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>

#include "common/runtime/asio_executor.h"
#include "router/http/http_server.h"
#include "tests/router/support/fake_pipeline.h"
#include "tests/router/support/raw_client.h"

namespace quire {

class EdgeHarness {
 public:
  // `key_table`: nullptr lets everyone in.
  explicit EdgeHarness(const HttpLimits& limits = {},
                       std::shared_ptr<const KeyTable> key_table = nullptr)
      : background(executor, 1, 16),
        pipeline(executor),
        keys(std::move(key_table), metrics, log),
        services(MakeServices(limits)) {
    http = std::make_unique<HttpServer>(services);
    thread_ = std::thread([this] { executor.Run(); });
  }
  ~EdgeHarness() {
    OnLoop([this] { http.reset(); });
    executor.Stop();
    thread_.join();
  }

  // Runs `work` on the loop and waits for it.
  void OnLoop(const std::function<void()>& work) {
    std::mutex mutex;
    std::condition_variable done_changed;
    bool done = false;
    executor.Post([&] {
      work();
      std::lock_guard<std::mutex> lock(mutex);
      done = true;
      done_changed.notify_one();
    });
    std::unique_lock<std::mutex> lock(mutex);
    done_changed.wait(lock, [&] { return done; });
  }

  // Looks on the loop until `condition` holds; false after a time far beyond what it needs.
  bool Eventually(const std::function<bool()>& condition) {
    const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(60);
    bool holds = false;
    while (!holds && std::chrono::steady_clock::now() < limit) {
      OnLoop([&] { holds = condition(); });
      if (!holds) std::this_thread::yield();
    }
    return holds;
  }

  // A client whose other end the HTTP server has.
  RawClient Connect() {
    int pair[2];
    if (::socketpair(AF_UNIX, SOCK_STREAM, 0, pair) != 0) return RawClient(-1);
    OnLoop([&] { http->Adopt(EdgeStream(executor.context(), pair[1]), "", nullptr); });
    return RawClient(pair[0]);
  }

  static std::string Post(const std::string& path, const std::string& body,
                          const std::string& headers = "") {
    return "POST " + path + " HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n" + headers +
           "Content-Length: " + std::to_string(body.size()) + "\r\n\r\n" + body;
  }
  static std::string Get(const std::string& path, const std::string& headers = "") {
    return "GET " + path + " HTTP/1.1\r\nHost: x\r\n" + headers + "\r\n";
  }
  // One request on a connection of its own.
  RawResponse Ask(const std::string& request) {
    RawClient client = Connect();
    client.Send(request);
    return client.ReadResponse(request.starts_with("HEAD "));
  }

  AsioExecutor executor;
  RealRng rng;
  NullLogger log;
  Metrics metrics;
  EdgeMetrics counters{metrics};
  ThreadBackground background;
  FakePipeline pipeline;
  KeyRing keys;
  HttpServices services;
  std::unique_ptr<HttpServer> http;

 private:
  HttpServices MakeServices(const HttpLimits& limits) {
    HttpServices made({executor, pipeline, background, rng, counters, log, "0.0.0-test"}, limits);
    if (keys.required()) made.keys = &keys;
    made.metrics_are_open = true;
    made.metrics_text = [](const auto& done) {
      done(std::make_shared<std::string>("# HELP x y\nx 1\n"));
    };
    return made;
  }

  std::thread thread_;
};

}  // namespace quire
