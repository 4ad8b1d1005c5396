// What a step costs beside its kernels, by the real engine and runner with two steps in flight: how
// long the device stands idle between two decode steps, what the host does for one, and how long
// weights take to the device.
//
// On a GPU, with a model of true size that QUIRE_PACE_MODEL names, these are figures of ./dev gpu;
// emulated, and with a small fixture, the same calls show that every step is stamped and no token
// is another. The idle time is between the end of a step's last kernel and the begin of the next
// one's first, by the device's clock, and holds what one stamp takes to end.
#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <filesystem>

#include "kernels/cuda/backend/cuda_backend.h"
#include "tests/kernels/cuda/backend/rows.h"
#include "tests/kernels/cuda/figures.h"
#include "tests/kernels/cuda/forwarding_runtime.h"
#include "tests/kernels/cuda/timing/stamp.h"
#include "worker/engine/engine.h"
#include "worker/runner/cpu_runner.h"
#include "worker/scheduler/scheduler.h"

namespace quire::golden {
namespace {

using kernels::cuda::test::ForwardingRuntime;
using kernels::cuda::test::Stamp;
using kernels::cuda::test::StampParams;

constexpr int32_t kBlockSize = 16;
constexpr int32_t kPromptTokens = 24;
constexpr int32_t kMaxStepTokens = 2048;
constexpr uint64_t kStepBegins = 1, kStepEnds = 2;

double Micros() {
  const auto now = std::chrono::steady_clock::now().time_since_epoch();
  return std::chrono::duration<double, std::micro>(now).count();
}

// Stamps the begin of every graph, and while it is told to watch the end of every step and what the
// host waits for the device.
class PacedRuntime final : public ForwardingRuntime {
 public:
  static constexpr uint64_t kMostStamps = 1 << 14;

  PacedRuntime() {
    body_ = MakeDeviceRuntime();
    void* at = nullptr;
    Keep(body_->Allocate(sizeof(uint64_t) + kMostStamps * sizeof(Stamp), &at));
    count_ = static_cast<uint64_t*>(at);
    params_.count = count_;
    params_.stamps = reinterpret_cast<Stamp*>(count_ + 1);
    params_.capacity = kMostStamps;
    Keep(body_->CreateStream(&stream_));
    Keep(body_->Fill(stream_, count_, 0, sizeof(uint64_t)));
    Keep(body_->Synchronize(stream_));
  }
  ~PacedRuntime() override { body_->Free(count_); }

  Error BeginCapture(StreamId stream) override {
    const Error error = body_->BeginCapture(stream);
    return error.empty() ? LaunchStamp(stream, kStepBegins) : error;
  }
  Error Record(EventId event, StreamId stream) override {
    const Error error = watching_ ? LaunchStamp(stream, kStepEnds) : Error();
    return error.empty() ? body_->Record(event, stream) : error;
  }
  Error Synchronize(EventId event) override {
    const double begin = Micros();
    Error error = body_->Synchronize(event);
    waited_us_ += Micros() - begin;
    return error;
  }
  using ForwardingRuntime::Synchronize;

  void Watch(bool watching) { watching_ = watching; }
  double waited_us() const { return waited_us_; }
  const Error& error() const { return error_; }

  // All of them; nothing is in flight.
  std::vector<Stamp> Stamps() {
    uint64_t count = 0;
    Keep(body_->Copy(stream_, &count, count_, sizeof(count)));
    Keep(body_->Synchronize(stream_));
    std::vector<Stamp> stamps(std::min(count, kMostStamps));
    Keep(body_->Copy(stream_, stamps.data(), params_.stamps, stamps.size() * sizeof(Stamp)));
    Keep(body_->Synchronize(stream_));
    return stamps;
  }

 private:
  Error LaunchStamp(StreamId stream, uint64_t kind) {
    params_.kind = kind;
    return kernels::cuda::test::LaunchStamp(*body_, stream, params_);
  }
  void Keep(const Error& error) {
    if (error_.empty()) error_ = error;
  }

  StampParams params_;
  uint64_t* count_ = nullptr;
  StreamId stream_{};
  bool watching_ = false;
  double waited_us_ = 0.0;
  Error error_;
};

// In microseconds, sorted.
struct Pace {
  std::vector<double> idle;  // of the device between two steps
  std::vector<double> host;  // of the host for a step, its waits for the device left out
  int steps = 0;             // that were watched
  double load_s = 0.0;
  int64_t weight_bytes = 0;
};

double At(const std::vector<double>& sorted, double share) {
  return sorted[static_cast<size_t>(share * static_cast<double>(sorted.size() - 1))];
}

class CudaGraphPace : public testing::Test {
 protected:
  CudaGraphPace() {
    const char* named = std::getenv("QUIRE_PACE_MODEL");
    const std::string path =
        named != nullptr ? named : SourceFolder() + "/tests/golden/models/llama3-gqa8-bias";
    tells_ = named != nullptr;
    name_ = std::filesystem::path(path).filename().string();
    auto model = model::LoadModel(path, {.with_text = false});
    EXPECT_TRUE(model.ok()) << model.status();
    if (model.ok()) model_ = *std::move(model);
  }

  // Rows that decode, one token in each of `steps`.
  Pace Measure(int32_t rows, int steps);

  void Tell(const std::string& name, double value, const char* unit) const {
    if (tells_) kernels::cuda::test::TellFigure(name + "_" + name_, value, unit);
  }

  std::unique_ptr<model::Model> model_;
  std::string name_;
  bool tells_ = false;
};

// The engine over one device.
class Served {
 public:
  Served(const model::Model& model, int32_t rows, int32_t length, Pace& pace) {
    auto runtime = std::make_unique<PacedRuntime>();
    runtime_ = runtime.get();
    backend_ = kernels::cuda::MakeCudaBackend(
        std::move(runtime), {"paced", "device of a test", {.warm_up = DeviceIsReal()}});
    kernels::ProgramOptions load;
    load.kv = kernels::DealLayers(model.program.layer_windows,
                                  backend_->PageShape(model.program, kBlockSize));
    const auto groups = static_cast<int32_t>(load.kv.groups.size());
    load.page_count = int64_t{rows} * (length / kBlockSize + 1) * groups;
    load.max_tokens = MaxStepTokens(rows, kMaxStepTokens, kBlockSize);
    load.max_rows = load.max_samples = rows;
    load.max_positions = length;
    const double begin = Micros();
    load.progress = [&pace, begin](int64_t done, int64_t total) {
      if (pace.weight_bytes > 0 || done < total) return;
      pace.load_s = (Micros() - begin) / 1e6;
      pace.weight_bytes = total;
    };
    program_ = backend_->Load(model.program, load);
    EngineOptions options;
    options.max_model_len = length;
    options.max_num_seqs = rows;
    options.max_num_batched_tokens = kMaxStepTokens;
    options.block_size = kBlockSize;
    options.page_count = load.page_count;
    options.cache_kinds = CacheKindsOf(load.kv);
    options.vocab_size = model.program.vocab_size;
    CpuRunnerOptions runner;
    runner.limits = {.max_rows = rows,
                     .max_tokens = load.max_tokens,
                     .max_model_len = length,
                     .block_size = kBlockSize,
                     .groups = groups,
                     .page_count = load.page_count,
                     .vocab_size = options.vocab_size};
    runner.max_in_flight = backend_->MaxInFlight(model.program);
    runner.now_us = [] { return static_cast<int64_t>(Micros()); };
    runner_ = std::make_unique<CpuRunner>(*program_, runner);
    engine_ = std::make_unique<Engine>(options, *runner_, progress_);
  }

  void Submit(uint64_t number, int32_t vocabulary, int32_t tokens) {
    quire::Submit submit;
    submit.key = {RequestNumber(number), Attempt(1)};
    submit.choices.resize(1);
    std::vector<TokenId> prompt;
    for (int32_t i = 0; i < kPromptTokens; ++i) {
      prompt.push_back(static_cast<TokenId>((number * 31 + i * 7 + 1) % vocabulary));
    }
    submit.prompt_ids = std::move(prompt);
    submit.sampling.temperature = 0;
    submit.sampling.ignore_eos = true;
    submit.sampling.max_tokens = tokens;
    engine_->Apply(SubmitCommand{RouterInstance(1), std::move(submit), kNeverMicros}, 1);
  }

  // One pass: tokens that came of it.
  int64_t Pass() {
    engine_->RunOnce(1, output_[turn_ ^= 1]);
    int64_t tokens = 0;
    for (const RouterOutput& router : output_[turn_].routers) {
      for (const Output& output : router.outputs) tokens += static_cast<int64_t>(output.ids.size());
      ended += static_cast<int>(router.ended.size());
      EXPECT_TRUE(router.refused.empty());
    }
    return tokens;
  }

  PacedRuntime& runtime() { return *runtime_; }
  std::string Failure() const { return program_->Failure(); }

  int ended = 0;

 private:
  std::unique_ptr<kernels::Backend> backend_;
  PacedRuntime* runtime_ = nullptr;  // the backend's
  std::unique_ptr<kernels::LoadedProgram> program_;
  std::unique_ptr<CpuRunner> runner_;
  StepProgress progress_;
  std::unique_ptr<Engine> engine_;
  EngineOutput output_[2];
  int turn_ = 0;
};

Pace CudaGraphPace::Measure(int32_t rows, int steps) {
  Pace pace;
  // Prompts come a few in a step, and who came first decodes until the last one does.
  const int32_t tokens = steps + rows * kPromptTokens / (kMaxStepTokens / 2) + 16;
  Served served(*model_, rows, kPromptTokens + tokens + kBlockSize, pace);
  for (int32_t i = 0; i < rows; ++i) {
    served.Submit(static_cast<uint64_t>(i) + 1, model_->program.vocab_size, tokens);
  }
  int passes = 0;
  while (served.Pass() < rows && ++passes < 1000) {
  }
  EXPECT_LT(passes, 1000) << "never all rows at once: " << served.Failure();
  served.runtime().Watch(true);
  for (; pace.steps < steps; ++pace.steps) {
    const double waited = served.runtime().waited_us();
    const double begin = Micros();
    const int64_t came = served.Pass();
    const double took = Micros() - begin;
    EXPECT_EQ(came, rows);
    pace.host.push_back(took - (served.runtime().waited_us() - waited));
  }
  served.runtime().Watch(false);
  for (passes = 0; served.ended < rows && passes < 1000; ++passes) served.Pass();
  EXPECT_EQ(served.ended, rows) << served.Failure();
  const std::vector<Stamp> stamps = served.runtime().Stamps();
  for (size_t i = 1; i < stamps.size(); ++i) {
    EXPECT_GE(stamps[i].nanos, stamps[i - 1].nanos) << "stamps are in the order of the stream";
    if (stamps[i - 1].kind != kStepEnds || stamps[i].kind != kStepBegins) continue;
    pace.idle.push_back(static_cast<double>(stamps[i].nanos - stamps[i - 1].nanos) / 1e3);
  }
  EXPECT_EQ(served.runtime().error(), "");
  std::sort(pace.idle.begin(), pace.idle.end());
  std::sort(pace.host.begin(), pace.host.end());
  return pace;
}

TEST_F(CudaGraphPace, EveryDecodeStepIsAGraphThatBeginsBehindTheOneBefore) {
  ASSERT_NE(model_, nullptr);
  const int steps = DeviceIsReal() ? 256 : 5;
  for (const int32_t rows : {1, DeviceIsReal() ? 256 : 6}) {
    const Pace pace = Measure(rows, steps);
    // Each watched step has an end, behind which the graph of another one begins.
    ASSERT_EQ(pace.idle.size(), static_cast<size_t>(steps)) << rows << " rows";
    ASSERT_EQ(pace.host.size(), static_cast<size_t>(steps));
    ASSERT_GT(pace.weight_bytes, 0);
    const std::string of = "_" + std::to_string(rows) + "_rows";
    Tell("idle_gap_p50" + of, At(pace.idle, 0.5), "us");
    Tell("idle_gap_p99" + of, At(pace.idle, 0.99), "us");
    Tell("host_work_p50" + of, At(pace.host, 0.5), "us");
    Tell("host_work_p99" + of, At(pace.host, 0.99), "us");
    if (rows > 1) continue;
    Tell("load", pace.load_s, "s");
    Tell("load_rate", static_cast<double>(pace.weight_bytes) / pace.load_s, "B/s");
  }
}

}  // namespace
}  // namespace quire::golden
