// What the engine costs around the model, and what its schedule is worth. Prints one line of JSON.
//
//   scheduler_bench --mode=pass --rows=1024     a round of Engine::RunOnce over a runner that costs
//     nothing: plan, packet, stop checks, allocation, outputs. Microseconds, the runner's own time
//     taken out. With --full=1 the cache is full of what others have left: every block that a
//     row takes is another's, evicted and told.
//   scheduler_bench --mode=gap --budget-ms=200  gaps of 8 streams while prompts of 16,000 tokens
//     come, in virtual time; steps follow a law that the engine has to learn, ± 20 %.
//   scheduler_bench --mode=waste                share of the cache's held slots that hold no token
//     that a later one sees, over mixed requests; and what it would be if no row held a block that
//     has none at all: a last block is half full as a rule, a window begins anywhere in its first.
#include <time.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <deque>
#include <map>
#include <random>
#include <vector>

#include "bench/flags.h"
#include "common/json/json.h"
#include "worker/engine/engine.h"
#include "worker/runner/step_packet.h"
#include "worker/scheduler/scheduler.h"

namespace quire {
namespace {

constexpr int32_t kWindow = 512;  // of the sliding kind, where there is one

struct Options {
  std::string mode = "pass";
  int32_t rows = 1024;
  int32_t steps = 3000;
  int32_t block_size = 16;
  int32_t windowed = 0;  // groups of a second, sliding kind
  int32_t budget_ms = 200;
  int32_t full = 0;  // 1: the pool has no free page when the passes are measured
};

int64_t NowNanos() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

// Answers every sampling row with one token, and takes no time or that of a law.
class EmptyRunner final : public Runner {
 public:
  explicit EmptyRunner(const StepLimits& limits) : limits_(limits) {
    sequences_.resize(static_cast<size_t>(limits.max_rows));
  }

  void Launch(std::span<const std::byte> packet, int64_t now_us) override {
    const int64_t begin = NowNanos();
    const absl::Status decoded = DecodeStepPlan(packet, limits_, plan_);
    if (!decoded.ok()) std::abort();
    for (const RowBirth& birth : plan_.born) {
      sequences_[static_cast<size_t>(birth.row)] = birth.sequence;
    }
    ready_us_ = now_us + StepMicros();
    spent_nanos += NowNanos() - begin;
  }
  int64_t ReadyAt() const override { return ready_us_; }
  void Collect(StepResult& result) override {
    const int64_t begin = NowNanos();
    result.number = plan_.number;
    result.elapsed_us = elapsed_us_;
    result.samples.clear();
    for (const StepRow& row : plan_.rows) {
      if (!row.sample) continue;
      SampledToken& sample = result.samples.emplace_back();
      sample.row = row.row;
      sample.sequence = sequences_[static_cast<size_t>(row.row)];
      sample.token = 7;
    }
    spent_nanos += NowNanos() - begin;
  }

  bool with_law = false;
  int64_t spent_nanos = 0;

 private:
  int64_t StepMicros() {
    elapsed_us_ = 0;
    if (!with_law) return 0;
    double micros = 6000;
    for (const StepRow& row : plan_.rows) {
      micros += row.q_len == 1 ? 500 : 220.0 * row.q_len;
      micros += 0.004 * (row.first_position + row.q_len / 2.0) * row.q_len;
    }
    elapsed_us_ =
        static_cast<int64_t>(micros * (0.8 + 0.4 * static_cast<double>(rng_() % 1001) / 1000));
    return elapsed_us_;
  }

  StepLimits limits_;
  StepPlan plan_;
  std::vector<uint64_t> sequences_;
  std::mt19937_64 rng_{11};
  int64_t ready_us_ = 0;
  int64_t elapsed_us_ = 0;
};

class World {
 public:
  World(const Options& options, int32_t rows, int32_t length) {
    engine_options.max_model_len = length;
    engine_options.max_num_seqs = rows;
    engine_options.max_waiting_requests = 2 * rows + 16;
    engine_options.block_size = options.block_size;
    engine_options.cache_kinds = {{0, 1}};
    if (options.windowed > 0) engine_options.cache_kinds.push_back({kWindow, options.windowed});
    const int64_t blocks = length / options.block_size + 2;
    engine_options.page_count = blocks * (1 + options.windowed) * rows;
    engine_options.vocab_size = 32000;
    StepLimits limits;
    limits.max_rows = rows;
    limits.max_tokens =
        MaxStepTokens(rows, engine_options.max_num_batched_tokens, engine_options.block_size);
    limits.max_model_len = length;
    limits.block_size = options.block_size;
    limits.groups = 1 + options.windowed;
    limits.page_count = engine_options.page_count;
    limits.vocab_size = engine_options.vocab_size;
    runner = std::make_unique<EmptyRunner>(limits);
  }
  void Start() { engine = std::make_unique<Engine>(engine_options, *runner, progress_); }

  void Send(uint64_t request, int32_t prompt, int32_t outputs) {
    SubmitCommand command;
    command.router = RouterInstance(1);
    command.submit.key = {RequestNumber(request), Attempt(1)};
    command.submit.submit_number = request;
    command.submit.prompt_ids =
        std::vector<TokenId>(static_cast<size_t>(prompt), static_cast<TokenId>(request % 30'000));
    command.submit.choices.resize(1);
    command.submit.sampling.max_tokens = outputs;
    command.submit.sampling.ignore_eos = true;
    command.submit.sampling.stop_token_ids = {1, 2, 3};
    engine->Apply(std::move(command), now_us);
  }

  EngineOptions engine_options;
  std::unique_ptr<EmptyRunner> runner;
  std::unique_ptr<Engine> engine;
  int64_t now_us = 1'000'000;

 private:
  StepProgress progress_;
};

// CPU time of this thread: what a pass takes on a machine that does other things too.
int64_t CpuNanos() {
  timespec now = {};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return now.tv_sec * 1'000'000'000 + now.tv_nsec;
}

double Percentile(std::vector<double>& values, double share) {
  std::sort(values.begin(), values.end());
  return values[static_cast<size_t>(share * static_cast<double>(values.size() - 1))];
}

// Requests that come and go until all that is free is cached for them.
void Fill(World& world, const Options& options, int32_t length) {
  EngineOutput output;
  for (uint64_t request = 1; request < 20'000; ++request) {
    world.Send(request + static_cast<uint64_t>(options.rows), length - 64, 1);
    do {
      world.engine->RunOnce(++world.now_us, output);
    } while (output.load.running_rows + output.load.waiting_requests > 0);
    if (output.load.free_blocks < static_cast<uint64_t>(length)) return;
  }
}

json::Object Pass(const Options& options) {
  const int32_t length = options.steps + 400;
  World world(options, options.rows, length);
  world.Start();
  if (options.full != 0) Fill(world, options, length);
  for (int32_t row = 0; row < options.rows; ++row) {
    world.Send(static_cast<uint64_t>(row) + 1, 20 + row % 37, length - 64);
  }
  std::vector<double> micros, cpu_micros;
  EngineOutput output;
  for (int step = 0; step < options.steps + 200; ++step) {
    world.runner->spent_nanos = 0;
    const int64_t cpu_begin = CpuNanos();
    const int64_t begin = NowNanos();
    world.engine->RunOnce(++world.now_us, output);
    const int64_t nanos = NowNanos() - begin - world.runner->spent_nanos;
    const int64_t cpu_nanos = CpuNanos() - cpu_begin - world.runner->spent_nanos;
    if (output.load.running_rows != static_cast<uint32_t>(options.rows)) continue;
    if (output.load.waiting_requests > 0 || step <= 150) continue;
    micros.push_back(nanos / 1000.0);
    cpu_micros.push_back(cpu_nanos / 1000.0);
  }
  json::Object out;
  out["rows"] = options.rows;
  out["passes"] = micros.size();
  out["evicted_blocks"] = world.engine->totals().cache.evicted_blocks;
  out["p50_us"] = Percentile(micros, 0.5);
  out["p99_us"] = Percentile(micros, 0.99);
  out["max_us"] = micros.back();
  out["cpu_p50_us"] = Percentile(cpu_micros, 0.5);
  out["cpu_p99_us"] = Percentile(cpu_micros, 0.99);
  return out;
}

json::Object Gap(const Options& options) {
  constexpr int kStreams = 8;
  World world(options, 16, 17'000);
  world.engine_options.max_step_time_us = int64_t{options.budget_ms} * 1000;
  world.runner->with_law = true;
  world.Start();
  for (uint64_t stream = 1; stream <= kStreams; ++stream) world.Send(stream, 30, 6000);
  std::map<uint64_t, int64_t> last;
  std::vector<double> gaps;
  EngineOutput output;
  uint64_t prompts = 0, answered = 0;
  int64_t first_send = 0;
  while (answered < 20) {
    if (prompts == answered && last.size() >= kStreams) {
      if (prompts == 0) first_send = world.now_us;
      world.Send(100 + ++prompts, 16'000, 1);
    }
    world.engine->RunOnce(world.now_us, output);
    for (const RouterOutput& router : output.routers) {
      for (const Output& token : router.outputs) {
        const uint64_t request = token.key.request.value();
        if (request > kStreams) continue;
        if (prompts > 0 && last.contains(request)) {
          gaps.push_back(static_cast<double>(world.now_us - last[request]) / 1000.0);
        }
        last[request] = world.now_us;
      }
      for (const Ended& ended : router.ended) answered += ended.key.request.value() > kStreams;
    }
    world.now_us = std::max(world.now_us, output.next_wakeup_us);
  }
  json::Object out;
  out["budget_ms"] = options.budget_ms;
  out["gaps"] = gaps.size();
  out["p50_ms"] = Percentile(gaps, 0.5);
  out["p99_ms"] = Percentile(gaps, 0.99);
  out["max_ms"] = gaps.back();
  out["prompt_s"] = static_cast<double>(world.now_us - first_send) / 20e6;
  return out;
}

// The scheduler alone, so that its sequences can be looked at.
json::Object Waste(const Options& options) {
  SchedulerOptions scheduler_options;
  scheduler_options.cache = {options.block_size, 1 << 20, {{0, 1}}};
  if (options.windowed > 0) scheduler_options.cache.kinds.push_back({kWindow, options.windowed});
  Scheduler scheduler(scheduler_options);
  std::mt19937_64 rng(5);
  SamplingParams sampling;
  std::deque<Sequence> sequences;
  StepPlan plan;
  std::vector<PlannedRow> rows;
  int64_t held = 0, least = 0, used = 0;
  size_t ended = 0;
  for (uint64_t request = 1; request <= 1000; ++request) {
    Sequence& sequence = sequences.emplace_back();
    sequence.id = sequence.arrival = request;
    sequence.prompt_length = static_cast<int32_t>(16 + rng() % 1000);
    sequence.output_limit = static_cast<int64_t>(16 + rng() % 500);
    sequence.sampling = &sampling;
    sequence.tokens.assign(static_cast<size_t>(sequence.prompt_length), 1);
    scheduler.Enqueue(sequence);
  }
  while (ended < sequences.size() && scheduler.Plan(plan, rows)) {
    held += scheduler.kv().pool().held() * options.block_size;
    for (const PlannedRow& row : rows) {
      const int64_t planned = row.sequence->planned;
      const int64_t first_seen = std::max<int64_t>(0, planned - kWindow + 1) / options.block_size;
      const int64_t blocks = (planned + options.block_size - 1) / options.block_size;
      least += (blocks + options.windowed * (blocks - first_seen)) * options.block_size;
      used += planned + options.windowed * std::min<int64_t>(planned, kWindow);
    }
    for (const PlannedRow& row : rows) {
      scheduler.CommitRow(row, row.sample ? 7 : -1);
      if (row.sequence->OutputCount() < row.sequence->output_limit) continue;
      scheduler.Remove(*row.sequence);
      ++ended;
    }
    scheduler.CommitStep(plan.number, rows);
  }
  json::Object out;
  out["block_size"] = options.block_size;
  out["wasted_percent"] = 100.0 * static_cast<double>(held - used) / static_cast<double>(held);
  out["least_percent"] = 100.0 * static_cast<double>(least - used) / static_cast<double>(least);
  return out;
}

int Main(const std::vector<std::string>& args) {
  Options options;
  if (!bench::ParseFlags("scheduler_bench", args,
                         {{"mode", &options.mode},
                          {"rows", &options.rows},
                          {"steps", &options.steps},
                          {"block-size", &options.block_size},
                          {"windowed", &options.windowed},
                          {"budget-ms", &options.budget_ms},
                          {"full", &options.full}}))
    return 2;
  const json::Object out = options.mode == "gap"     ? Gap(options)
                           : options.mode == "waste" ? Waste(options)
                                                     : Pass(options);
  std::printf("%s\n", json::Serialize(out).c_str());
  return 0;
}

}  // namespace
}  // namespace quire

int main(int argc, char** argv) {
  return quire::Main(quire::config::ArgumentsFromMain(argc, argv));
}
