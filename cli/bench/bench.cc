// `quire bench serve`: a load on a server, with vLLM's options and vLLM's report.
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <thread>

#include "cli/bench/bench_dataset.h"
#include "cli/bench/bench_report.h"
#include "cli/bench/bench_run.h"
#include "cli/commands.h"
#include "cli/format.h"
#include "common/host_port.h"

namespace quire::cli {
namespace {

struct BenchArguments {
  std::string action, backend = "openai", base_url, host = "127.0.0.1", endpoint, tokenizer;
  int32_t port = 8000;
  std::string request_rate = "inf", percentile_metrics = "ttft,tpot,itl", percentiles = "99";
  std::string extra_body, ramp, result_dir, result_filename, label;
  std::vector<std::string> goodput;
  int32_t max_concurrency = 0, warmups = 0, ready_seconds = 0;
  double ramp_start = 0, ramp_end = 0, burstiness = 1;
  bool ignore_eos = false, save_result = false, save_detailed = false, append_result = false;
  bool plot = false, quiet = false;
  int64_t sharegpt_output_len = 0, custom_output_len = 0;
  DatasetOptions dataset;
  AskOptions server;
};

// The requested load, checked.
struct BenchPlan {
  BenchRequests requests;
  BenchSettings settings;
  ArrivalOptions arrivals;
};

void AddServer(BenchArguments& a, config::Schema& schema) {
  schema.AddPositional(
      {.name = "ACTION", .help = "serve.", .target = &a.action, .choices = {"serve"}}, true);
  schema.Group("Server");
  schema.Add({.name = "backend",
              .help = "vllm and openai ask /v1/completions, openai-chat /v1/chat/completions.",
              .target = &a.backend,
              .choices = {"vllm", "openai", "openai-chat"}});
  schema.Add({.name = "base-url",
              .help = "The server, as https://HOST:PORT where it speaks TLS.",
              .target = &a.base_url,
              .value_name = "URL",
              .default_text = "http://HOST:PORT"});
  schema.Add({.name = "host", .help = "Its address.", .target = &a.host});
  schema.Add({.name = "port", .help = "Its port.", .target = &a.port, .min = 1, .max = 65535});
  schema.Add({.name = "endpoint",
              .help = "The path that is asked.",
              .target = &a.endpoint,
              .default_text = "the backend's"});
  schema.Add({.name = "model",
              .help = "A model that the server lists.",
              .target = &a.server.model,
              .default_text = "the first one"});
  schema.Add({.name = "tokenizer",
              .help = "Taken and not used: the server's own tokenizer makes and counts the tokens.",
              .target = &a.tokenizer,
              .default_text = "the server's"});
  schema.Add({.name = "api-key",
              .help = "Sent as a bearer token; better in QUIRE_API_KEY or OPENAI_API_KEY.",
              .target = &a.server.api_key,
              .default_text = "none",
              .secret = true});
  schema.Add({.name = "cacert",
              .help = "PEM file with the authority of the server's certificate.",
              .target = &a.server.authorities,
              .value_name = "FILE",
              .default_text = "those that the system trusts"});
  schema.Add({.name = "ready-check-timeout-sec",
              .help = "Seconds in which a first request must be answered; 0 leaves it out.",
              .target = &a.ready_seconds,
              .min = 0,
              .max = 3600});
}

void AddLoad(BenchArguments& a, config::Schema& schema) {
  schema.Group("Load");
  schema.Add({.name = "num-prompts",
              .help = "Requests.",
              .target = &a.dataset.num_prompts,
              .min = 1,
              .max = static_cast<double>(kMaxBenchPrompts)});
  schema.Add({.name = "request-rate",
              .help = "Requests a second; inf sends all at once.",
              .target = &a.request_rate,
              .value_name = "X"});
  schema.Add(
      {.name = "burstiness",
       .help = "Shape of the gamma-distributed gaps: 1 is a Poisson process, less is burstier.",
       .target = &a.burstiness,
       .min = 0.01,
       .max = 1000});
  schema.Add({.name = "max-concurrency",
              .help = "Requests that are under way at once at most; more wait here.",
              .target = &a.max_concurrency,
              .min = 0,
              .max = static_cast<double>(kMaxBenchStreams),
              .default_text = "1024"});
  schema.Add({.name = "ramp-up-strategy",
              .help = "The rate goes from --ramp-up-start-rps to --ramp-up-end-rps over the run.",
              .target = &a.ramp,
              .choices = {"linear", "exponential"},
              .default_text = "none"});
  schema.Add(
      {.name = "ramp-up-start-rps", .help = "See there.", .target = &a.ramp_start, .min = 0});
  schema.Add({.name = "ramp-up-end-rps", .help = "See there.", .target = &a.ramp_end, .min = 0});
  schema.Add({.name = "num-warmups",
              .help = "Requests that are sent before and not counted.",
              .target = &a.warmups,
              .min = 0,
              .max = 10'000});
  schema.Add({.name = "seed",
              .help = "The same seed draws the same prompts at the same times.",
              .target = &a.dataset.seed});
  schema.Add({.name = "ignore-eos",
              .help = "Every answer is as long as was asked for.",
              .target = &a.ignore_eos});
  schema.Add({.name = "temperature",
              .help = "0 always takes the likeliest token.",
              .target = &a.server.temperature,
              .default_text = "the model's default"});
  schema.Add({.name = "top-p",
              .help = "Keeps the likeliest tokens up to this mass.",
              .target = &a.server.top_p,
              .default_text = "the model's default"});
  schema.Add({.name = "extra-body",
              .help = "JSON object with further fields of each request.",
              .target = &a.extra_body,
              .value_name = "JSON",
              .default_text = "none"});
}

void AddDataset(BenchArguments& a, config::Schema& schema) {
  schema.Group("Dataset");
  DatasetOptions& d = a.dataset;
  schema.Add({.name = "dataset-name",
              .help = "random and prefix_repetition are drawn; sharegpt (JSON) and custom (a JSON "
                      "object with \"prompt\" on each line) are files.",
              .target = &d.name,
              .choices = {"random", "prefix_repetition", "sharegpt", "custom"}});
  schema.Add({.name = "dataset-path",
              .help = "That file.",
              .target = &d.path,
              .value_name = "FILE",
              .default_text = "none"});
  const auto length = [&schema](const char* name, const char* help, int64_t& target, double least) {
    schema.Add({.name = name, .help = help, .target = &target, .min = least, .max = 1 << 20});
  };
  length("random-input-len", "Tokens of a random prompt.", d.random_input_len, 1);
  length("random-output-len", "Tokens of its answer.", d.random_output_len, 1);
  length("random-prefix-len", "Tokens that all random prompts begin with.", d.random_prefix_len, 0);
  schema.Add({.name = "random-range-ratio",
              .help = "Lengths lie between length × (1 − r) and length × (1 + r).",
              .target = &d.random_range_ratio,
              .min = 0,
              .max = 0.999});
  length("prefix-repetition-prefix-len", "Tokens of each shared prefix.", d.prefix_len, 0);
  length("prefix-repetition-suffix-len", "Tokens behind it.", d.suffix_len, 1);
  length("prefix-repetition-num-prefixes", "Different prefixes.", d.num_prefixes, 1);
  length("prefix-repetition-output-len", "Tokens of an answer.", d.prefix_output_len, 1);
  length("sharegpt-output-len", "Tokens of an answer; 0: about as many as the file's.",
         a.sharegpt_output_len, 0);
  length("custom-output-len", "Tokens of an answer; 0: output_tokens of the line, or 256.",
         a.custom_output_len, 0);
}

void AddOutput(BenchArguments& a, config::Schema& schema) {
  schema.Group("Report");
  schema.Add({.name = "goodput",
              .help = "Bounds within which a request counts as good, in milliseconds: ttft:200 "
                      "tpot:50 e2el:5000.",
              .target = &a.goodput,
              .value_name = "METRIC:MS"});
  schema.Add({.name = "percentile-metrics",
              .help = "Which are reported, of ttft, tpot, itl, e2el, with commas.",
              .target = &a.percentile_metrics});
  schema.Add({.name = "metric-percentiles",
              .help = "Which percentiles, with commas.",
              .target = &a.percentiles});
  schema.Add({.name = "save-result", .help = "Writes a JSON file.", .target = &a.save_result});
  schema.Add({.name = "save-detailed",
              .help = "With each request's lengths, times and text in it.",
              .target = &a.save_detailed});
  schema.Add({.name = "append-result",
              .help = "Adds a line to that file instead of replacing it.",
              .target = &a.append_result});
  schema.Add({.name = "result-dir",
              .help = "Where it is written.",
              .target = &a.result_dir,
              .value_name = "DIR",
              .default_text = "."});
  schema.Add({.name = "result-filename",
              .help = "Its name.",
              .target = &a.result_filename,
              .value_name = "FILE",
              .default_text = "made of backend, rate, model and time"});
  schema.Add({.name = "label", .help = "Name of this run in the file.", .target = &a.label});
  schema.Add({.name = "plot-timeline",
              .help = "Writes plots beside the result, as .svg: tokens and requests over time, "
                      "first tokens and gaps.",
              .target = &a.plot});
  schema.Add({.name = "disable-tqdm", .help = "Shows no progress.", .target = &a.quiet});
}

std::vector<std::string> SplitCommas(const std::string& text) {
  std::vector<std::string> parts;
  std::istringstream stream(text);
  for (std::string part; std::getline(stream, part, ',');) {
    if (!part.empty()) parts.push_back(part);
  }
  return parts;
}

absl::Status PlanReport(const BenchArguments& a, BenchSettings& settings) {
  for (const std::string& name : SplitCommas(a.percentile_metrics)) {
    if (name != "ttft" && name != "tpot" && name != "itl" && name != "e2el") {
      return InvalidArgument("--percentile-metrics: must be of ttft, tpot, itl, e2el, is '" + name +
                             "'");
    }
    settings.percentile_metrics.push_back(name);
  }
  for (const std::string& text : SplitCommas(a.percentiles)) {
    const absl::StatusOr<double> value = config::ParseDouble(text);
    if (!value.ok() || *value < 0 || *value > 100) {
      return InvalidArgument("--metric-percentiles: must be in [0, 100], is '" + text + "'");
    }
    settings.percentiles.push_back(*value);
  }
  for (const std::string& text : a.goodput) {
    QUIRE_ASSIGN_OR_RETURN(auto bound, ParseGoodput(text));
    settings.goodput.push_back(std::move(bound));
  }
  return absl::OkStatus();
}

absl::Status PlanArrivals(const BenchArguments& a, ArrivalOptions& arrivals) {
  arrivals.seed = a.dataset.seed;
  arrivals.burstiness = a.burstiness;
  arrivals.ramp = a.ramp;
  arrivals.ramp_start = a.ramp_start;
  arrivals.ramp_end = a.ramp_end;
  if (a.request_rate != "inf") {
    const absl::StatusOr<double> rate = config::ParseDouble(a.request_rate);
    if (!rate.ok() || *rate <= 0) {
      return InvalidArgument("--request-rate: must be above 0, or inf, is '" + a.request_rate +
                             "'");
    }
    arrivals.request_rate = *rate;
  }
  if (a.ramp.empty()) return absl::OkStatus();
  if (a.ramp_start <= 0 || a.ramp_end <= 0) {
    return InvalidArgument(
        "--ramp-up-strategy: needs --ramp-up-start-rps and --ramp-up-end-rps above 0");
  }
  if (arrivals.request_rate <= 0) return absl::OkStatus();
  return InvalidArgument("--request-rate: goes without --ramp-up-strategy, which sets the rate");
}

absl::StatusOr<BenchPlan> Plan(const BenchArguments& a) {
  BenchPlan plan;
  plan.requests.server = a.server;
  plan.requests.chat = a.backend == "openai-chat";
  plan.requests.endpoint = a.endpoint;
  if (a.endpoint.empty()) {
    plan.requests.endpoint = plan.requests.chat ? "/v1/chat/completions" : "/v1/completions";
  }
  if (plan.requests.endpoint[0] != '/') return InvalidArgument("--endpoint: must begin with /");
  plan.requests.server.url = a.base_url.empty()
                                 ? "http://" + JoinHostPort(a.host, static_cast<uint32_t>(a.port))
                                 : a.base_url;
  QUIRE_RETURN_IF_ERROR(ServerOf(plan.requests.server).status());
  plan.requests.ignore_eos = a.ignore_eos;
  plan.requests.max_concurrency = a.max_concurrency;
  if (!a.extra_body.empty()) {
    const absl::StatusOr<json::Value> extra = json::Parse(a.extra_body);
    if (!extra.ok() || !extra->is_object()) {
      return InvalidArgument("--extra-body: must be a JSON object, as in '{\"top_k\": 20}'");
    }
    plan.requests.extra = extra->get_object();
  }
  QUIRE_RETURN_IF_ERROR(PlanReport(a, plan.settings));
  QUIRE_RETURN_IF_ERROR(PlanArrivals(a, plan.arrivals));
  plan.settings.backend = a.backend;
  plan.settings.label = a.label;
  plan.settings.url = plan.requests.server.url;
  plan.settings.request_rate = plan.arrivals.request_rate;
  plan.settings.burstiness = a.burstiness;
  plan.settings.num_prompts = a.dataset.num_prompts;
  plan.settings.max_concurrency = a.max_concurrency;
  plan.settings.detailed = a.save_detailed;
  return plan;
}

absl::Status AwaitReady(const BenchArguments& a, const BenchPlan& plan, const BenchPrompt& prompt,
                        const std::atomic<bool>& interrupted) {
  const double begin = SteadySeconds();
  while (a.ready_seconds > 0) {
    const BenchResult result = SendOne(plan.requests, prompt, begin, interrupted);
    if (result.success) break;
    if (interrupted) return absl::CancelledError("interrupted");
    if (SteadySeconds() - begin > a.ready_seconds) {
      return absl::UnavailableError(AbslView("--ready-check-timeout-sec: " + result.error));
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(200));
  }
  for (int32_t i = 0; i < a.warmups && !interrupted; ++i) {
    SendOne(plan.requests, prompt, begin, interrupted);
  }
  return absl::OkStatus();
}

// "openai-infqps-concurrency8-demo-20260131-120000", as vLLM names its files.
std::string DefaultName(const BenchSettings& settings) {
  const std::time_t now = std::time(nullptr);
  std::tm parts{};
  localtime_r(&now, &parts);
  char stamp[32];
  std::strftime(stamp, sizeof(stamp), "%Y%m%d-%H%M%S", &parts);
  std::string model = settings.model;
  std::replace(model.begin(), model.end(), '/', '_');
  const std::string rate =
      settings.request_rate > 0 ? config::FormatDouble(settings.request_rate) : "inf";
  const std::string at_once =
      settings.max_concurrency > 0 ? "-concurrency" + std::to_string(settings.max_concurrency) : "";
  return settings.backend + "-" + rate + "qps" + at_once + "-" + model + "-" + stamp + ".json";
}

absl::Status WriteText(const std::filesystem::path& path, const std::string& text, bool append) {
  std::ofstream file(path, std::ios::binary | (append ? std::ios::app : std::ios::trunc));
  file << text;
  file.close();
  if (file) return absl::OkStatus();
  return absl::UnavailableError(
      AbslView("--result-dir, --result-filename: " + path.string() + " cannot be written"));
}

absl::Status Save(const BenchArguments& a, const BenchPlan& plan, const BenchMetrics& metrics,
                  const std::vector<BenchResult>& results) {
  const bool save = a.save_result || a.save_detailed || a.append_result;
  if (!save && !a.plot) return absl::OkStatus();
  std::filesystem::path path = a.result_dir.empty() ? "." : a.result_dir;
  std::error_code error;
  std::filesystem::create_directories(path, error);
  path /= a.result_filename.empty() ? DefaultName(plan.settings) : a.result_filename;
  if (save) {
    json::Object object = BenchJson(metrics, plan.settings, results);
    const std::time_t now = std::time(nullptr);
    object["date"] = static_cast<int64_t>(now);
    QUIRE_RETURN_IF_ERROR(WriteText(path, json::Serialize(object) + "\n", a.append_result));
    std::printf("written: %s\n", path.c_str());
  }
  if (!a.plot) return absl::OkStatus();
  path.replace_extension(".svg");
  QUIRE_RETURN_IF_ERROR(WriteText(path, BenchPlot(metrics, results), false));
  std::printf("written: %s\n", path.c_str());
  return absl::OkStatus();
}

absl::Status RunLoad(const BenchArguments& a, BenchPlan& plan,
                     const std::atomic<bool>& interrupted) {
  if (plan.requests.server.model.empty()) {
    QUIRE_ASSIGN_OR_RETURN(plan.requests.server.model,
                           FirstModel(plan.requests.server, interrupted));
  }
  plan.settings.model = plan.requests.server.model;
  QUIRE_ASSIGN_OR_RETURN(
      const std::vector<BenchPrompt> prompts,
      LoadDataset(a.dataset, plan.requests.chat, plan.requests.server, interrupted));
  QUIRE_RETURN_IF_ERROR(AwaitReady(a, plan, prompts.front(), interrupted));
  const bool progress = !a.quiet && isatty(STDERR_FILENO) != 0;
  const double begin = SteadySeconds();
  const std::vector<BenchResult> results = SendAll(
      plan.requests, prompts, ArrivalTimes(plan.arrivals, static_cast<int64_t>(prompts.size())),
      interrupted, [&](size_t ended) {
        if (progress) std::fprintf(stderr, "\r%zu of %zu", ended, prompts.size());
      });
  if (progress) std::fputs("\n", stderr);
  const BenchMetrics metrics = MeasureResults(results, plan.settings, SteadySeconds() - begin);
  std::fputs(BenchReport(metrics, plan.settings).c_str(), stdout);
  const auto wrong = std::find_if(results.begin(), results.end(),
                                  [](const BenchResult& result) { return !result.success; });
  if (wrong != results.end() && !interrupted) {
    std::fprintf(stderr, "the first failure: %s\n", PlainText(wrong->error, 300).c_str());
  }
  QUIRE_RETURN_IF_ERROR(Save(a, plan, metrics, results));
  if (interrupted) return absl::CancelledError("interrupted");
  if (metrics.completed > 0) return absl::OkStatus();
  return absl::UnavailableError("no request succeeded");
}

// vLLM accepts several bounds after one --goodput.
std::vector<std::string> SpreadGoodput(const std::vector<std::string>& args) {
  const auto is_bound = [&args](size_t i) {
    return i < args.size() && !args[i].starts_with("-") && args[i].find(':') != std::string::npos;
  };
  std::vector<std::string> spread;
  for (size_t i = 0; i < args.size(); ++i) {
    if (args[i] != "--goodput" || !is_bound(i + 1)) {
      spread.push_back(args[i]);
      continue;
    }
    while (is_bound(i + 1)) spread.push_back("--goodput=" + args[++i]);
  }
  return spread;
}

}  // namespace

int RunBench(const CommandInputs& inputs) {
  BenchArguments a;
  config::Schema schema("quire bench",
                        "Generates load and reports how fast the server answers, with the options, "
                        "the report and the JSON of vllm bench serve.");
  AddServer(a, schema);
  AddLoad(a, schema);
  AddDataset(a, schema);
  AddOutput(a, schema);
  CommandInputs own = inputs;
  own.args = SpreadGoodput(inputs.args);
  if (const std::optional<int> code = Begin(own, schema, "bench")) return *code;
  TakeKey(inputs.environment, a.server);
  a.dataset.output_len = a.dataset.name == "sharegpt" ? a.sharegpt_output_len : a.custom_output_len;
  absl::StatusOr<BenchPlan> plan = Plan(a);
  if (!plan.ok()) return Failed("bench", plan.status());
  const absl::Status ran = RunLoad(a, *plan, *inputs.interrupted);
  if (*inputs.interrupted) return 130;
  return ran.ok() ? 0 : Failed("bench", ran);
}

}  // namespace quire::cli
