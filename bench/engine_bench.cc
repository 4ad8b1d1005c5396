// The bare engine on one thread's clock: no router, no wire. Prints one line of JSON.
//
//   engine_bench --model=PATH --mode=prefill --tokens=512
//   engine_bench --model=PATH --mode=decode --batch=16 --context=128 --tokens=64
//   engine_bench --model=PATH --mode=decode --batch=16 --context=4096 --tokens=24 --copied=1
//   engine_bench --model=PATH --mode=closed --batch=16 --requests=64 --context=32 --tokens=128
//   engine_bench --model=PATH --mode=hit --context=2000 --tokens=128
//   engine_bench --model=PATH --mode=gap --batch=8 --context=16000 --budget-ms=200 --seconds=60
//
// With --times=1 a prefill or decode run also prints which share of its steps each kind of op
// takes. With --copied=1 a decode run computes one prompt and copies its pages for every other row.
// With --constrained=N the first N rows of a decode run write JSON, under --schemas=K schemas in
// turn. With --mixed=1 a closed run's prompts and answers have half to one and a half times that
// length; with --show=1 the requests of the last repeat are printed too, for others to answer.
//
// prefill: prompt tokens per second of one prompt. decode: output tokens per second once every row
// is past its prompt. closed: output tokens per second of `requests` requests, `batch` at a time,
// prompts included. hit: time to the first token behind `context` cached tokens and `tokens` new
// ones, beside that of the same new tokens at the same context and that of all of them. gap:
// milliseconds between two tokens of `batch` streams while prompts of `context` tokens come, one
// after the other.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <map>
#include <random>
#include <vector>

#include "bench/constraints/schemas.h"
#include "bench/copied_context.h"
#include "bench/engine_options.h"
#include "common/check.h"
#include "common/json/json.h"
#include "kernels/backend.h"
#include "kernels/kv_layout.h"
#include "kernels/ops.h"
#include "kernels/step_times.h"
#include "worker/constrain/mask_pool.h"
#include "worker/engine/engine.h"
#include "worker/model/model.h"
#include "worker/runner/cpu_runner.h"

namespace quire {
namespace {

using Options = bench::EngineBenchOptions;

// Of the streams in a run of gaps, and of what a chunk of the prompt holds in a sliding window.
constexpr int kLongestStream = 1024;
constexpr int kWidestWindow = 4096;
// Steps in which all but one of the prompts of a run with --copied are taken in, at most.
constexpr int kCopySteps = 64;

int64_t NowMicros() {
  const auto since = std::chrono::steady_clock::now().time_since_epoch();
  return std::chrono::duration_cast<std::chrono::microseconds>(since).count();
}

class Bench {
 public:
  Bench(const Options& options, const model::Model& model, kernels::Backend& backend)
      : options_(options), vocab_size_(model.program.vocab_size) {
    const int length = (options.context + options.tokens) * (options.mixed != 0 ? 2 : 1) + 32 +
                       (options.copied != 0 ? kCopySteps : 0);
    kernels::KvShape shape = backend.PageShape(model.program, kernels::KvShape{}.block_size);
    for (const auto type : {kernels::KvType::kF32, kernels::KvType::kBF16, kernels::KvType::kF16,
                            kernels::KvType::kFp8}) {
      if (options.kv_cache_dtype == kernels::KvTypeName(type)) shape.type = type;
    }
    kernels::ProgramOptions program;
    program.release_source = [&model](const void* data, int64_t bytes) {
      model.ReleaseSource(data, bytes);
    };
    program.times = options.times != 0 ? &times : nullptr;
    program.kv = kernels::DealLayers(model.program.layer_windows, shape, model.program.states);
    // Room for what is cached besides.
    const int sequences = options.batch + (options.mode == "hit" ? 3 : 1);
    program.page_count = static_cast<int64_t>(sequences) * (length / shape.block_size + 2) *
                         static_cast<int64_t>(program.kv.groups.size());
    if (options.mode == "gap") {  // one long prompt at a time beside short streams
      program.page_count =
          length / shape.block_size * 2 +
          static_cast<int64_t>(sequences * (kLongestStream / shape.block_size + 2) +
                               kWidestWindow / shape.block_size) *
              static_cast<int64_t>(program.kv.groups.size());
    }
    program.max_rows = std::max(1, options.batch) + (options.mode == "gap" ? 1 : 0);
    program.max_samples = program.max_rows;
    auto loaded = std::make_unique<bench::CopiedContext>(backend.Load(model.program, program));
    copied_ = loaded.get();
    program_ = std::move(loaded);
    EngineOptions engine;
    engine.max_model_len = length;
    engine.max_num_seqs = program.max_rows;
    engine.page_count = program.page_count;
    if (options.mode == "hit") engine.max_num_batched_tokens = options.context;
    for (const kernels::KvKind& kind : program.kv.kinds) {
      const bool given = kind.state_interval > 0 && options.state_interval > 0;
      engine.cache_kinds.push_back(
          {kind.window, kind.groups, given ? options.state_interval : kind.state_interval});
    }
    engine.vocab_size = vocab_size_;
    engine.max_step_time_us = int64_t{options.budget_ms} * 1000;
    CpuRunnerOptions runner;
    runner.limits.max_rows = program.max_rows;
    runner.limits.max_model_len = length;
    runner.limits.groups = static_cast<int>(program.kv.groups.size());
    runner.limits.page_count = program.page_count;
    runner.limits.vocab_size = vocab_size_;
    runner.now_us = NowMicros;
    if (options.constrained > 0) {
      MakeGrammars(model);
      masks_ = std::make_unique<MaskPool>(
          MaskPoolOptions{.threads = options.mask_threads, .vocab_size = vocab_size_});
      runner.masks = engine.masks = masks_.get();
    }
    runner_ = std::make_unique<CpuRunner>(*program_, runner);
    engine_ = std::make_unique<Engine>(engine, *runner_, progress_);
  }

  std::vector<TokenId> RandomPrompt(int tokens) {
    std::vector<TokenId> prompt(static_cast<size_t>(tokens));
    for (TokenId& id : prompt) id = static_cast<TokenId>(10 + random_() % (vocab_size_ - 10));
    return prompt;
  }
  // The request's number.
  uint64_t Submit(int prompt_tokens, int max_tokens) {
    return Submit(RandomPrompt(prompt_tokens), max_tokens);
  }
  uint64_t Submit(std::vector<TokenId> prompt, int max_tokens) {
    SubmitCommand command;
    command.router = RouterInstance(1);
    quire::Submit& submit = command.submit;
    submit.key = {RequestNumber(++submitted_), Attempt(1)};
    submit.submit_number = submitted_;
    submit.choices.resize(1);
    if (options_.show != 0) asked[submitted_].prompt = prompt;
    submit.prompt_ids = std::move(prompt);
    submit.sampling.temperature = 0;
    submit.sampling.ignore_eos = true;
    submit.sampling.max_tokens = max_tokens;
    if (in_run_++ < options_.constrained) {
      const size_t which = static_cast<size_t>(in_run_ - 1) % grammars_.size();
      submit.constraint.kind = ConstraintKind::kJsonSchema;
      command.grammar = grammars_[which];
    }
    engine_->Apply(std::move(command), NowMicros());
    return submitted_;
  }

  using Copied = bench::CopiedContext::Mode;
  void SetCopied(Copied mode) { copied_->Set(mode); }

  // The next requests are the first of a run.
  void BeginRun() { in_run_ = 0; }

  // One step; counts what came of it.
  EngineOutput Step() {
    EngineOutput output = engine_->RunOnce(NowMicros());
    for (const RouterOutput& router : output.routers) {
      for (const Output& out : router.outputs) {
        outputs += static_cast<int64_t>(out.ids.size());
        started += out.first_index == 0 ? 1 : 0;
        if (options_.show == 0) continue;
        std::vector<TokenId>& told = asked[out.key.request.value()].outputs;
        told.insert(told.end(), out.ids.begin(), out.ids.end());
      }
      ended += static_cast<int64_t>(router.ended.size());
      refused += static_cast<int64_t>(router.refused.size());
    }
    return output;
  }

  kernels::StepTimes times;  // with --times
  int64_t outputs = 0, started = 0, ended = 0, refused = 0;
  struct Request {
    std::vector<TokenId> prompt;
    std::vector<TokenId> outputs;
  };
  std::map<uint64_t, Request> asked;  // with --show, by request number

 private:
  void MakeGrammars(const model::Model& model) {
    const auto tokenizer = text::Tokenizer::FromJson(model.bundle.tokenizer_json);
    QUIRE_CHECK_MSG(tokenizer.ok(), "the model's tokenizer is usable");
    const auto vocabulary =
        grammar::Vocabulary::Make(**tokenizer, vocab_size_, model.bundle.eos_token_ids);
    QUIRE_CHECK_MSG(vocabulary.ok(), "the model's vocabulary is usable");
    for (int32_t i = 0; i < options_.schemas; ++i) {
      Constraint constraint;
      constraint.kind = ConstraintKind::kJsonSchema;
      constraint.source = std::string(bench::kEndlessHead) +
                          bench::kSchemas[static_cast<size_t>(i) % std::size(bench::kSchemas)] +
                          bench::kEndlessTail;
      // Where a schema stands now.
      const std::string root = "#/$defs/";
      for (size_t at = 0; (at = constraint.source.find(root, at)) != std::string::npos;) {
        constraint.source.replace(at, root.size(), "#/items/$defs/");
      }
      auto grammar = grammar::Grammar::Compile(*vocabulary, constraint, {}, nullptr);
      QUIRE_CHECK_MSG(grammar.ok(), StatusMessage(grammar.status()).c_str());
      grammars_.push_back(*std::move(grammar));
    }
  }

  Options options_;
  int32_t in_run_ = 0;  // requests
  std::vector<std::shared_ptr<const grammar::Grammar>> grammars_;
  std::unique_ptr<MaskPool> masks_;
  int32_t vocab_size_;
  uint64_t submitted_ = 0;
  std::mt19937 random_{7};
  StepProgress progress_;
  std::unique_ptr<kernels::LoadedProgram> program_;
  bench::CopiedContext* copied_ = nullptr;  // program_
  std::unique_ptr<CpuRunner> runner_;
  std::unique_ptr<Engine> engine_;
};

// Tokens per second of one repeat.
double Run(const Options& options, Bench& bench) {
  bench.asked.clear();
  bench.BeginRun();
  bench.outputs = bench.started = bench.ended = bench.refused = 0;
  if (options.mode == "prefill") {
    bench.Submit(options.tokens, 1);
    const int64_t begin = NowMicros();
    while (bench.ended + bench.refused < 1) bench.Step();
    return options.tokens * 1e6 / static_cast<double>(NowMicros() - begin);
  }
  if (options.mode == "decode") {
    const int tokens = options.tokens + 1 + (options.copied != 0 ? kCopySteps : 0);
    for (int i = 0; i < options.batch; ++i) {
      if (i == 1 && options.copied != 0) {
        bench.SetCopied(Bench::Copied::kWatch);
        while (bench.started + bench.refused < 1) bench.Step();
        bench.SetCopied(Bench::Copied::kCopy);
      }
      bench.Submit(options.context, tokens);
    }
    while (bench.started + bench.refused < options.batch) bench.Step();
    QUIRE_CHECK_MSG(options.copied == 0 || bench.ended == 0, "copied prompts take too many steps");
    bench.SetCopied(Bench::Copied::kCompute);
    const int64_t before = bench.outputs;
    const int64_t begin = NowMicros();
    const int64_t enough =
        options.copied != 0 ? int64_t{options.tokens} * options.batch : (int64_t{1} << 62);
    while (bench.ended + bench.refused < options.batch && bench.outputs - before < enough) {
      bench.Step();
    }
    return static_cast<double>(bench.outputs - before) * 1e6 /
           static_cast<double>(NowMicros() - begin);
  }
  const int64_t begin = NowMicros();
  const int requests = std::max(options.requests, options.batch);
  int submitted = 0;
  while (bench.ended + bench.refused < requests) {
    for (; submitted < requests && submitted - bench.ended < options.batch; ++submitted) {
      const int share = options.mixed == 0 ? 64 : 32 + submitted * 37 % 64;  // of 64
      bench.Submit(options.context * share / 64, options.tokens * share / 64);
    }
    bench.Step();
  }
  return static_cast<double>(bench.outputs) * 1e6 / static_cast<double>(NowMicros() - begin);
}

struct FirstToken {
  double hit_us = 0;
  double same_context_us = 0;  // the step that computes the new tokens, when nothing is cached
  double miss_us = 0;
};

FirstToken RunHit(const Options& options, Bench& bench) {
  const auto until_token = [&bench] {
    bench.started = bench.ended = bench.refused = 0;
    while (bench.ended + bench.refused < 1) bench.Step();
  };
  FirstToken times;
  std::vector<TokenId> shared = bench.RandomPrompt(options.context);
  int64_t begin = NowMicros();
  bench.Submit(bench.RandomPrompt(options.context + options.tokens), 1);
  bench.Step();  // of `context` tokens: a step holds no more
  const int64_t middle = NowMicros();
  until_token();
  int64_t end = NowMicros();
  times.miss_us = static_cast<double>(end - begin);
  times.same_context_us = static_cast<double>(end - middle);
  bench.Submit(shared, 1);
  until_token();
  const std::vector<TokenId> fresh = bench.RandomPrompt(options.tokens);
  shared.insert(shared.end(), fresh.begin(), fresh.end());
  begin = NowMicros();
  bench.Submit(std::move(shared), 1);
  until_token();
  end = NowMicros();
  times.hit_us = static_cast<double>(end - begin);
  return times;
}

double Median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

int ReportHit(const Options& options, Bench& bench) {
  std::vector<double> hit, same, miss, over_same, over_miss;
  for (int i = 0; i < std::max(1, options.repeats); ++i) {
    const FirstToken times = RunHit(options, bench);
    hit.push_back(times.hit_us / 1000);
    same.push_back(times.same_context_us / 1000);
    miss.push_back(times.miss_us / 1000);
    over_same.push_back(times.hit_us / times.same_context_us);
    over_miss.push_back(times.hit_us / times.miss_us);
  }
  json::Object out;
  out["mode"] = options.mode;
  out["cached_tokens"] = options.context;
  out["new_tokens"] = options.tokens;
  out["hit_ms"] = Median(hit);
  out["same_context_ms"] = Median(same);
  out["miss_ms"] = Median(miss);
  out["hit_over_same_context"] = Median(over_same);
  out["hit_over_miss"] = Median(over_miss);
  std::printf("%s\n", json::Serialize(out).c_str());
  return bench.refused > 0 ? 1 : 0;
}

json::Array Shown(const Bench& bench) {
  const auto list = [](const std::vector<TokenId>& ids) {
    return json::Array(ids.begin(), ids.end());
  };
  json::Array requests;
  for (const auto& [number, request] : bench.asked) {
    json::Object& shown = requests.emplace_back(json::Object()).as_object();
    shown["prompt"] = list(request.prompt);
    shown["outputs"] = list(request.outputs);
  }
  return requests;
}

// Milliseconds between two tokens of a stream, while a prompt is being computed.
std::vector<double> RunGap(const Options& options, Bench& bench, int& prompts) {
  std::map<uint64_t, int64_t> last;  // by stream: when its last token came
  std::vector<double> gaps;
  uint64_t prompt = 0;  // the one in hand
  int streams = 0;
  const auto step = [&] {
    const EngineOutput output = bench.Step();
    const int64_t now = NowMicros();
    for (const RouterOutput& router : output.routers) {
      for (const Output& told : router.outputs) {
        const uint64_t request = told.key.request.value();
        if (request == prompt) continue;
        const auto before = last.find(request);
        if (before != last.end() && prompt != 0) {
          gaps.push_back(static_cast<double>(now - before->second) / 1000);
        }
        last[request] = now;
      }
      for (const Ended& ended : router.ended) {
        const uint64_t request = ended.key.request.value();
        prompts += request == prompt ? 1 : 0;
        streams -= request == prompt ? 0 : 1;
        if (request == prompt) prompt = 0;
        last.erase(request);
      }
    }
    for (; streams < options.batch; ++streams) bench.Submit(32, kLongestStream - 32);
  };
  // The engine has to have seen prefill before it can foretell it.
  bench.Submit(1000, 1);
  streams = 1;
  while (bench.ended < 1 || last.size() < static_cast<size_t>(options.batch)) step();
  for (int i = 0; i < 20; ++i) step();
  const int64_t end = NowMicros() + int64_t{options.seconds} * 1'000'000;
  while (NowMicros() < end) {
    if (prompt == 0) prompt = bench.Submit(options.context, 1);
    step();
  }
  std::sort(gaps.begin(), gaps.end());
  return gaps;
}

int ReportGap(const Options& options, Bench& bench) {
  int prompts = 0;
  const std::vector<double> gaps = RunGap(options, bench, prompts);
  if (gaps.empty() || bench.refused > 0) return 1;
  const auto at = [&gaps](double share) {
    return gaps[static_cast<size_t>(share * static_cast<double>(gaps.size() - 1))];
  };
  json::Object out;
  out["mode"] = options.mode;
  out["streams"] = options.batch;
  out["prompt_tokens"] = options.context;
  out["budget_ms"] = options.budget_ms;
  out["gaps"] = gaps.size();
  out["prompts"] = prompts;
  out["p50_ms"] = at(0.5);
  out["p99_ms"] = at(0.99);
  out["max_ms"] = gaps.back();
  std::printf("%s\n", json::Serialize(out).c_str());
  return 0;
}

// Of the steps of all repeats: what each kind of op takes, and in it routing, and waiting.
json::Object Shares(const kernels::StepTimes& times, const kernels::StepProgram& program) {
  json::Object shares;
  for (const kernels::Op& op : program.ops) {
    shares[kernels::OpName(op)] = times.ops[op.index()] / times.steps;
  }
  if (times.routing > 0) shares["routing, within moe"] = times.routing / times.steps;
  shares["idle threads"] = times.idle / times.steps;
  return shares;
}

int Main(const std::vector<std::string>& args) {
  Options options;
  if (!bench::ReadFlags(args, options)) return 2;
  const auto model = model::LoadModel(options.model, {.with_text = options.constrained > 0});
  if (!model.ok()) {
    std::fprintf(stderr, "engine_bench: %s\n", StatusMessage(model.status()).c_str());
    return 2;
  }
  kernels::CpuOptions cpu{.threads = options.threads, .isa = options.isa};
  cpu.activation_dtype = options.activation_dtype;
  std::string error;
  const auto backend = kernels::MakeCpuBackend(cpu, error);
  if (backend == nullptr) {
    std::fprintf(stderr, "engine_bench: %s\n", error.c_str());
    return 2;
  }
  if (const absl::Status filled = (*model)->FillWeights(backend->TakesRowWriters()); !filled.ok()) {
    std::fprintf(stderr, "engine_bench: %s\n", StatusMessage(filled).c_str());
    return 2;
  }
  if (options.copied != 0 && (options.mode != "decode" || options.repeats + options.warmups > 1)) {
    std::fprintf(stderr, "engine_bench: --copied=1 needs --mode=decode --repeats=1 --warmups=0\n");
    return 2;
  }
  Bench bench(options, **model, *backend);
  if (options.mode == "hit") {
    for (int i = 0; i < options.warmups; ++i) RunHit(options, bench);
    return ReportHit(options, bench);
  }
  if (options.mode == "gap") return ReportGap(options, bench);
  for (int i = 0; i < options.warmups; ++i) Run(options, bench);  // caches and threads
  bench.times = {};
  std::vector<double> rates;
  for (int i = 0; i < std::max(1, options.repeats); ++i) {
    rates.push_back(Run(options, bench));
    if (bench.refused > 0) {
      std::fprintf(stderr, "engine_bench: a request was refused\n");
      return 1;
    }
  }
  std::sort(rates.begin(), rates.end());
  json::Object out;
  out["mode"] = options.mode;
  out["backend"] = backend->Description();
  out["numerics"] = backend->NumericsClass((*model)->program);
  out["tokens_per_second"] = rates[rates.size() / 2];
  out["min"] = rates.front();
  out["max"] = rates.back();
  if (options.show != 0) out["requests"] = Shown(bench);
  if (options.times != 0) out["times"] = Shares(bench.times, (*model)->program);
  std::printf("%s\n", json::Serialize(out).c_str());
  return 0;
}

}  // namespace
}  // namespace quire

int main(int argc, char** argv) {
  return quire::Main(quire::config::ArgumentsFromMain(argc, argv));
}
