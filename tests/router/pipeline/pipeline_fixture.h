// The pipeline between played workers and recording sinks, on virtual time.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "common/runtime/virtual_background.h"
#include "common/runtime/virtual_runtime.h"
#include "router/pipeline/make_pipeline.h"
#include "router/pipeline/pipeline.h"
#include "tests/router/support/fake_worker.h"
#include "tests/router/support/recording_sink.h"

namespace quire {

inline constexpr Micros kSecond = kMicrosPerSecond;

class PipelineTest : public ::testing::Test {
 protected:
  FakeWorker& AddWorker(FakeWorkerOptions options = {}) {
    if (!workers_.empty() && options.target == "worker-0:9000") {
      options.target = "worker-" + std::to_string(workers_.size()) + ":9000";
      options.worker_id = "worker-" + std::to_string(workers_.size());
    }
    workers_.push_back(std::make_unique<FakeWorker>(world_, options));
    return *workers_.back();
  }

  void StartRouter(PipelineOptions options = {}) {
    for (const auto& worker : workers_) options.workers.push_back(worker->options().target);
    options.text_factory =
        [this](const std::string& bundle) -> absl::StatusOr<std::shared_ptr<const ModelText>> {
      if (bundle != kFakeBundle) return InvalidArgument("not the fake bundle");
      return std::shared_ptr<const ModelText>(text_);
    };
    options.records = &records_;
    const PipelineRuntime runtime{world_.executor(), background_, *dialer_,
                                  world_.rng(),      logger_,     metrics_};
    auto made = MakePipeline(std::move(options), runtime);
    ASSERT_TRUE(made.ok()) << made.status();
    pipeline_ = *std::move(made);
    Run(kSecond);
  }

  // The first worker that has an attempt, or the last one when none has.
  FakeWorker& Busy() {
    const auto busy = std::find_if(workers_.begin(), workers_.end(),
                                   [](const auto& worker) { return !worker->attempts.empty(); });
    return busy != workers_.end() ? **busy : *workers_.back();
  }

  void Run(Micros duration) { world_.RunUntil(world_.clock().Now() + duration); }

  static GenerateRequest Ask(const std::string& prompt, int max_tokens = 5) {
    GenerateRequest ask;
    ask.prompt = TextPrompt{prompt, true};
    ask.sampling.max_tokens = max_tokens;
    return ask;
  }
  RecordingSink RunOne(GenerateRequest ask, Micros duration = 10 * kSecond) {
    RecordingSink sink;
    pipeline_->Start(std::move(ask), &sink);
    Run(duration);
    EXPECT_TRUE(sink.Over());
    return sink;
  }
  // Blames the field, in the message too.
  void ExpectBlamed(GenerateRequest ask, const std::string& field) {
    const RecordingSink sink = RunOne(std::move(ask));
    ASSERT_TRUE(sink.error.has_value()) << field;
    EXPECT_EQ(sink.error->param, field) << sink.error->message;
    EXPECT_EQ(sink.error->code, ApiCode::kInvalidArgument) << sink.error->message;
    EXPECT_NE(sink.error->message.find(field), std::string::npos) << sink.error->message;
    EXPECT_FALSE(sink.started.has_value());
  }
  void ExpectNothingLeft() {
    EXPECT_EQ(pipeline_->LiveRequests(), 0u);
    Run(kSecond);
    for (const auto& worker : workers_) EXPECT_TRUE(worker->attempts.empty());
  }

  VirtualWorld world_{1};
  VirtualBackground background_{world_.executor(), kMicrosPerMilli};
  std::unique_ptr<Dialer> dialer_ = world_.MakeDialer();
  // Keeps what is said of workers.
  class KeepingLogger final : public Logger {
   public:
    KeepingLogger() : Logger(LogLevel::kInfo) {}
    std::vector<std::string> lines;

   private:
    void Write(LogLevel, std::string_view message, std::span<const LogField> fields) override {
      std::string line(message);
      for (const LogField& field : fields) {
        line += " " + std::string(field.key) + "=" + field.value.text;
      }
      lines.push_back(line);
    }
  };
  KeepingLogger logger_;
  class KeepingRecords final : public RecordSink {
   public:
    std::vector<RequestRecord> all;

   private:
    void Write(const RequestRecord& record) override { all.push_back(record); }
  };
  KeepingRecords records_;
  Metrics metrics_;
  std::shared_ptr<FakeText> text_ = std::make_shared<FakeText>();
  std::vector<std::unique_ptr<FakeWorker>> workers_;
  std::unique_ptr<Pipeline> pipeline_;
};

}  // namespace quire
