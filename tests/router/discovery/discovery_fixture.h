// What sources live in, on virtual time: files and names that a test makes up.
#pragma once

#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "common/runtime/virtual_background.h"
#include "common/runtime/virtual_runtime.h"
#include "router/discovery/fetch.h"
#include "router/discovery/resolver.h"
#include "router/discovery/source.h"

namespace quire {

using Targets = std::vector<std::string>;

class FakeFiles final : public Files {
 public:
  absl::StatusOr<std::string> Read(const std::string& path, size_t max_bytes) override {
    const auto it = files.find(path);
    if (it == files.end()) return absl::NotFoundError(AbslView(path + ": no such file"));
    if (it->second.size() > max_bytes) {
      return absl::ResourceExhaustedError(AbslView(path + ": too large"));
    }
    return it->second;
  }
  std::map<std::string, std::string> files;
};

class FakeResolver final : public Resolver {
 public:
  explicit FakeResolver(Executor& executor) : executor_(executor) {}
  void Resolve(const std::string& host, Done done) override {
    ++asked;
    if (hangs) return;
    executor_.Post([this, host, done = std::move(done)] {
      const auto it = names.find(host);
      if (it != names.end()) return done(it->second);
      done(absl::UnavailableError(AbslView(host + " cannot be resolved")));
    });
  }
  std::map<std::string, Targets> names;
  bool hangs = false;
  int asked = 0;

 private:
  Executor& executor_;
};

class DiscoveryTest : public ::testing::Test {
 protected:
  DiscoveryTest()
      : background_(world_.executor(), 0),
        metrics_of_source_(metrics_, "test"),
        runtime_{
            world_.executor(),
            background_,
            files_,
            world_.rng(),
            log_,
            [this](const std::string&, Targets targets) { found_.push_back(std::move(targets)); }} {
  }

  void RunFor(Micros time) { world_.RunUntil(world_.clock().Now() + time); }

  VirtualWorld world_{1};
  VirtualBackground background_;
  FakeFiles files_;
  class KeepingLogger final : public Logger {
   public:
    KeepingLogger() : Logger(LogLevel::kInfo) {}
    std::vector<std::string> lines;

   private:
    void Write(LogLevel, std::string_view message, std::span<const LogField>) override {
      lines.emplace_back(message);
    }
  };
  KeepingLogger log_;
  Metrics metrics_;
  SourceMetrics metrics_of_source_;
  std::vector<Targets> found_;
  DiscoveryRuntime runtime_;
};

}  // namespace quire
