// mock_workers: many workers without a model in one process, each on a port of its own, paced by a
// timer: what a router sees of a fleet, on one core.
//
//   mock_workers --workers=64 --decode-ms=20 --max-num-seqs=64
//   mock_workers --script=rules.json
//
// Why not the real engine over a fake model: its scheduler, pages and sampler are most of what a
// token costs there, and with 64 of them the machine would measure those. Here the sessions and
// frames are the product's, and behind them is only a list of rows. Once all ports listen it prints
// one line, {"workers": ["127.0.0.1:40001", …], "http": "127.0.0.1:40000"}; there are /metrics of
// all of them together. SIGTERM ends all at once, as a crash of the host would.
#include <signal.h>

#include <charconv>
#include <cstdio>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "bench/flags.h"
#include "bench/mock/paced_worker.h"
#include "bench/mock/script.h"
#include "common/json/json.h"
#include "common/log/flags.h"
#include "common/runtime/asio_executor.h"
#include "common/text/text_bundle.h"
#include "common/text/tokenizer.h"
#include "worker/load/text/text_files.h"
#include "worker/rpc/attach_hub.h"
#include "worker/rpc/health.h"
#include "worker/rpc/http_asio.h"
#include "worker/rpc/server.h"

namespace quire::bench {
namespace {

constexpr int32_t kMaxMockWorkers = 64;
constexpr Micros kCountInterval = 50 * kMicrosPerMilli;

struct Options {
  int32_t workers = 1;
  std::vector<std::string> ports;  // one per worker; none: the system chooses
  std::string text = "models/demo";
  std::string served_name = "mock";
  std::string model_id = "mock-model";
  std::string tokenizer;  // a file that routers get unread as tokenizer.json; empty: that of `text`
  std::string numerics = "mock";
  int32_t vocab = 2048;
  int32_t max_model_len = 8192;
  int32_t max_num_seqs = 256;
  int32_t max_waiting = 256;
  int64_t blocks = 65'536;
  double prefill_rate = 0;  // tokens/s; 0: at once
  double decode_ms = 20;
  bool prefix_caching = true;
  bool stamps = false;
  std::string script;         // a file of rules (script.h); empty: tokens that mean nothing
  bool spread_steps = false;  // the steps of worker i come i/workers of a step behind the first's
};

struct Bundle {
  std::string bytes;
  std::string sha256;
  std::unique_ptr<Script> script;  // with --script
};

absl::StatusOr<Bundle> ReadBundle(const Options& options) {
  QUIRE_ASSIGN_OR_RETURN(const auto files, load::ModelFiles::Open(options.text));
  QUIRE_ASSIGN_OR_RETURN(text::TextBundle bundle, load::LoadTextBundle(*files));
  if (!options.tokenizer.empty()) {
    RealFiles read;
    QUIRE_ASSIGN_OR_RETURN(bundle.tokenizer_json,
                           read.Read(options.tokenizer, text::kMaxTokenizerJsonBytes));
  }
  Bundle made;
  if (!options.script.empty()) {
    RealFiles read;
    QUIRE_ASSIGN_OR_RETURN(const std::string rules,
                           read.Read(options.script, text::kMaxTokenizerJsonBytes));
    QUIRE_ASSIGN_OR_RETURN(made.script, Script::Read(rules, bundle));
  }
  QUIRE_ASSIGN_OR_RETURN(made.bytes, text::SerializeTextBundle(bundle));
  const std::string hex = text::TextBundleDigest(made.bytes);
  for (size_t i = 0; i + 1 < hex.size(); i += 2) {
    made.sha256 += static_cast<char>(std::stoi(hex.substr(i, 2), nullptr, 16));
  }
  return made;
}

PaceOptions PaceOf(const Options& options, const Bundle& bundle, int32_t worker) {
  PaceOptions pace;
  pace.model_id = options.model_id;
  pace.numerics_id = options.numerics;
  pace.vocab_size = static_cast<uint32_t>(options.vocab);
  pace.max_model_len = static_cast<uint32_t>(options.max_model_len);
  pace.max_num_seqs = static_cast<uint32_t>(options.max_num_seqs);
  pace.max_waiting = static_cast<uint32_t>(options.max_waiting);
  pace.capacity_blocks = options.blocks;
  pace.prefill_tokens_per_s = options.prefill_rate;
  pace.decode_interval = static_cast<Micros>(options.decode_ms * kMicrosPerMilli);
  pace.prefix_caching = options.prefix_caching;
  pace.stamps = options.stamps;
  pace.script = bundle.script.get();
  if (options.spread_steps) pace.step_phase = pace.decode_interval * worker / options.workers;
  return pace;
}

// What all workers share; outlives them.
struct House {
  AsioExecutor& executor;
  Background& background;
  RpcMetrics& rpc_metrics;
  Logger& log;
  Rng& rng;
  const Bundle& bundle;
};

// One of the workers: its pace, its sessions, its port.
class MockWorker {
 public:
  MockWorker(const Options& options, int32_t index, House& house)
      : model_id_(options.model_id),
        pace_(PaceOf(options, house.bundle, index), house.executor,
              [this] { hub_->OnEngineOutput(); }) {
    WorkerHello hello;
    pace_.Describe(hello);
    hello.epoch = Epoch(house.rng.Next());
    hello.worker_id = "mock-" + std::to_string(hello.epoch.value() % 1'000'000'000);
    hello.served_names = {options.served_name};
    hello.text_bundle_sha256 = house.bundle.sha256;
    hub_ = std::make_unique<AttachHub>(std::move(hello), house.executor, pace_, house.log,
                                       house.rpc_metrics);
  }

  absl::Status Listen(int port, House& house) {
    WorkerServerOptions options;
    options.port = port;
    options.model_id = model_id_;
    options.text_bundle = house.bundle.bytes;
    options.context = &house.executor.context();
    options.executor = &house.executor;
    options.background = &house.background;
    options.metrics = &house.rpc_metrics;
    options.log = &house.log;
    options.accept = [this](std::unique_ptr<FrameStream> s) { hub_->Accept(std::move(s)); };
    QUIRE_ASSIGN_OR_RETURN(server_, StartWorkerServer(std::move(options)));
    server_->SetServing(true);
    return absl::OkStatus();
  }

  std::string address() const { return "127.0.0.1:" + std::to_string(server_->port()); }
  const PacedWorker& pace() const { return pace_; }
  void Shutdown() { server_->Shutdown(); }

 private:
  const std::string model_id_;
  PacedWorker pace_;
  std::unique_ptr<AttachHub> hub_;
  std::unique_ptr<WorkerServer> server_;
};

struct MockMetrics {
  explicit MockMetrics(Metrics& metrics)
      : live(metrics.AddGauge({"mock_live_requests", "Requests that run or wait."})),
        held(metrics.AddGauge({"mock_held_blocks", "Blocks that requests hold."})),
        tokens(metrics.AddGauge({"mock_tokens", "Tokens written."})),
        submits(metrics.AddGauge({"mock_submits", "Submits seen."})),
        refused(metrics.AddGauge({"mock_refused", "Submits refused."})) {}

  void Count(const std::vector<std::unique_ptr<MockWorker>>& workers) {
    PacedCounters sum;
    double requests = 0;
    double blocks = 0;
    for (const auto& worker : workers) {
      sum.tokens += worker->pace().counters().tokens;
      sum.submits += worker->pace().counters().submits;
      sum.refused += worker->pace().counters().refused;
      requests += static_cast<double>(worker->pace().live());
      blocks += static_cast<double>(worker->pace().held_blocks());
    }
    live.Set(requests);
    held.Set(blocks);
    tokens.Set(static_cast<double>(sum.tokens));
    submits.Set(static_cast<double>(sum.submits));
    refused.Set(static_cast<double>(sum.refused));
  }

  Gauge& live;
  Gauge& held;
  Gauge& tokens;
  Gauge& submits;
  Gauge& refused;
};

void KeepCounting(AsioExecutor& executor, MockMetrics& metrics,
                  const std::vector<std::unique_ptr<MockWorker>>& workers) {
  metrics.Count(workers);
  executor.PostAt(executor.clock().Now() + kCountInterval,
                  [&] { KeepCounting(executor, metrics, workers); });
}

absl::Status Serve(const Options& options) {
  if (options.workers < 1 || options.workers > kMaxMockWorkers) {
    return InvalidArgument("--workers: must be in [1, 64]");
  }
  if (!options.ports.empty() && options.ports.size() != static_cast<size_t>(options.workers)) {
    return InvalidArgument("--port: give one for each worker, or none");
  }
  const bool fits = options.blocks >= 1 && options.blocks <= kMaxMockBlocks &&
                    options.max_num_seqs >= 1 && options.vocab > int32_t{kFirstMockToken};
  if (!fits) return InvalidArgument("--blocks, --max-num-seqs, --vocab: out of range");
  QUIRE_ASSIGN_OR_RETURN(const Bundle bundle, ReadBundle(options));
  const RealClock clock;
  Metrics metrics;
  RpcMetrics rpc_metrics(metrics);
  MockMetrics mock_metrics(metrics);
  Health health(clock);
  RealRng rng;
  AsioExecutor executor;
  const std::unique_ptr<Logger> log = MakeLogger(LoggerOptionsFromFlags("off", "json"));
  ThreadBackground background(executor, 1, 256);
  House house{executor, background, rpc_metrics, *log, rng, bundle};
  std::vector<std::unique_ptr<MockWorker>> workers;
  json::Array addresses;
  for (int32_t i = 0; i < options.workers; ++i) {
    workers.push_back(std::make_unique<MockWorker>(options, i, house));
    const std::string text = options.ports.empty() ? "0" : options.ports[static_cast<size_t>(i)];
    uint16_t port = 0;
    const auto read = std::from_chars(text.data(), text.data() + text.size(), port);
    if (read.ec != std::errc() || read.ptr != text.data() + text.size()) {
      return InvalidArgument("--port: \"" + text + "\" is no port; 50051 and 0 are");
    }
    QUIRE_RETURN_IF_ERROR(workers.back()->Listen(port, house));
    addresses.push_back(json::Value(workers.back()->address()));
  }
  QUIRE_ASSIGN_OR_RETURN(const auto http,
                         StartHttpServer({"127.0.0.1", 0, &health, &metrics, "{}"}));
  json::Object line;
  line["workers"] = std::move(addresses);
  line["http"] = "127.0.0.1:" + std::to_string(http->port());
  std::printf("%s\n", json::Serialize(line).c_str());
  std::fflush(stdout);
  executor.OnTerminationSignal([](int) { std::_Exit(0); });
  executor.Post([&] { KeepCounting(executor, mock_metrics, workers); });
  executor.Run();
  return absl::OkStatus();
}

}  // namespace
}  // namespace quire::bench

int main(int argc, char** argv) {
  quire::bench::Options options;
  if (!quire::bench::ParseFlags("mock_workers", quire::config::ArgumentsFromMain(argc, argv),
                                {{"workers", &options.workers},
                                 {"port", &options.ports},
                                 {"text", &options.text},
                                 {"served-name", &options.served_name},
                                 {"model-id", &options.model_id},
                                 {"tokenizer", &options.tokenizer},
                                 {"numerics", &options.numerics},
                                 {"vocab", &options.vocab},
                                 {"max-model-len", &options.max_model_len},
                                 {"max-num-seqs", &options.max_num_seqs},
                                 {"max-waiting", &options.max_waiting},
                                 {"blocks", &options.blocks},
                                 {"prefill-rate", &options.prefill_rate},
                                 {"decode-ms", &options.decode_ms},
                                 {"prefix-caching", &options.prefix_caching},
                                 {"stamps", &options.stamps},
                                 {"script", &options.script},
                                 {"spread-steps", &options.spread_steps}}))
    return 2;
  signal(SIGPIPE, SIG_IGN);
  const absl::Status served = quire::bench::Serve(options);
  std::fprintf(stderr, "mock_workers: %s\n", quire::StatusMessage(served).c_str());
  return 1;
}
