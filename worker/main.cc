// quire-worker: loads a model, proves that it produces a token, then serves routers until it gets
// the order to leave.
//
// Threads: this one becomes the rpc thread; the engine, the HTTP port, the background and the
// kernels have their own. Exit codes: 0 done, 1 failed at run time, 2 bad arguments, 3 model
// unusable, 4 device unusable.
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <thread>

#include "common/config/program.h"
#include "common/host_port.h"
#include "common/json/json.h"
#include "common/log/flags.h"
#include "common/memory_limits.h"
#include "common/metrics/memory_metrics.h"
#include "common/metrics/process_metrics.h"
#include "common/runtime/asio_executor.h"
#include "common/runtime/core_dumps.h"
#include "common/runtime/descriptors.h"
#include "common/trace/exporter.h"
#include "common/wire/features.h"
#include "worker/adapter_keeper.h"
#include "worker/adapter_setup.h"
#include "worker/config.h"
#include "worker/constraint_setup.h"
#include "worker/engine/engine_thread.h"
#include "worker/find_device.h"
#include "worker/loaded_worker.h"
#include "worker/named_model.h"
#include "worker/own_name.h"
#include "worker/process_gauges.h"
#include "worker/rank_programs.h"
#include "worker/records/attempt_log.h"
#include "worker/records/attempt_traces.h"
#include "worker/records/vllm_metrics.h"
#include "worker/rpc/attach_hub.h"
#include "worker/rpc/health.h"
#include "worker/rpc/http_asio.h"
#include "worker/rpc/server.h"
#include "worker/start_files.h"
#include "worker/thread_stacks.h"
#include "worker/watchdog.h"

namespace quire {
namespace {

constexpr std::string_view kProgram = "quire-worker";
constexpr int kBackgroundThreads = 2;  // for handshakes with routers, and their files
constexpr size_t kMaxBackgroundWork = 256;
constexpr int kLoadingThreads = 2;  // one reads an adapter, one looks at what is wanted
constexpr Micros kHealthInterval = 250 * kMicrosPerMilli;
constexpr std::string_view kListenFlag = "--listen (port 0 lets the system choose)";
constexpr std::string_view kHttpPortFlag = "--http-port (0 lets the system choose)";

int Fail(int exit_code, std::string_view message) {
  return config::Fail(kProgram, exit_code, message);
}

std::string VersionJson(const WorkerConfig& config) {
  json::Object version;
  version["version"] = QUIRE_VERSION;
  const std::vector<std::string>& names = config.served_model_names;
  version["model"] = names.empty() ? ModelBaseName(config.model) : names.front();
  return json::Serialize(version);
}

std::string AddressOf(const HostPort& at) { return at.host == "localhost" ? "127.0.0.1" : at.host; }

VllmMetricsOptions ServingOptions(const WorkerConfig& config, const WorkerHello& hello) {
  return {.model_name = hello.served_names.front(),
          .max_model_len = static_cast<int32_t>(hello.limits.max_model_len),
          .block_size = BlockSizeOf(config),
          .page_count = static_cast<int64_t>(hello.capacity_blocks),
          .prefix_caching = hello.prefix_caching};
}

std::unique_ptr<trace::Exporter> MakeExporter(const trace::TraceSettings& tracing,
                                              const trace::TraceMetrics& metrics, Logger& log) {
  if (!tracing.on) return nullptr;
  log.Info("traces are exported", {{"to", trace::ShownUrl(tracing.url)}});
  return std::make_unique<trace::Exporter>(tracing, trace::HttpSender(tracing), metrics, log);
}

// Where ranks are on GPUs, the plan covers their memory.
int64_t FreeOnHost(const WorkerConfig& config, const LoadedWorker& worker) {
  if (worker.device_monitor == nullptr) return worker.plan.free_bytes;
  return UsableMemory(ReadMemoryFiles("/")).usable_bytes / config.workers_on_host;
}

// Serves a loaded worker on the calling thread.
class Service {
 public:
  Service(const WorkerConfig& config, LoadedWorker& worker, Health& health, Metrics& metrics,
          Logger& log)
      : config_(config),
        worker_(worker),
        health_(health),
        log_(log),
        memory_(std::make_shared<MemoryAccount>(
            RouterMemoryBytes(config.router_memory.value, FreeOnHost(config, worker)))),
        rpc_metrics_(metrics),
        job_metrics_(metrics),
        vllm_metrics_(ServingOptions(config, worker.hello), executor_.clock(), metrics),
        compiling_(executor_, kCompileThreads, CompileLimits(config)),
        loading_(executor_, kLoadingThreads, kMaxAdapterJobs),
        engine_(*worker.engine, worker.progress, executor_.clock(),
                executor_.MakeBell([this] { hub_->OnEngineOutput(); })) {
    AddMemoryMetrics(memory_, {"quire_worker_router_memory_", "routers", "the worker"}, metrics);
    if (worker.pack_adapter != nullptr) MakeKeeper();
    if (worker.vocabulary == nullptr) return;
    compiler_ = std::make_unique<ConstraintCompiler>(config.constraint, worker.vocabulary,
                                                     executor_, compiling_, metrics);
  }

  // Both outlive the service; without `attempt_log` no records are written.
  absl::Status Start(int http_port, AttemptLog* attempt_log, AttemptTraces& traces) {
    const absl::StatusOr<HostPort> listen = ParseHostPort(config_.listen);
    WorkerServerOptions options;
    options.host = AddressOf(*listen);
    options.port = listen->port;
    options.model_id = worker_.model->model_id;
    options.text_bundle = worker_.model->bundle_bytes;
    if (!config_.tls_cert_file.empty()) {
      options.tls =
          ServerTlsOptions{{config_.tls_cert_file, config_.tls_key_file, config_.tls_ca_file},
                           config_.tls_router_names};
    }
    options.context = &executor_.context();
    options.executor = &executor_;
    options.background = &background_;
    options.metrics = &rpc_metrics_;
    options.memory = memory_;
    options.log = &log_;
    options.accept = [this](std::unique_ptr<FrameStream> s) { hub_->Accept(std::move(s)); };
    absl::StatusOr<std::unique_ptr<WorkerServer>> server = StartWorkerServer(std::move(options));
    if (!server.ok()) return server.status();
    server_ = *std::move(server);
    if (keeper_ != nullptr) {
      QUIRE_RETURN_IF_ERROR(
          keeper_->LoadAtStart([this](AdapterCommand one) { return Place(std::move(one)); }));
    }
    // Before the loop runs, on which routers are let in.
    MakeHub(attempt_log, traces);
    executor_.OnTerminationSignal([this](int signal) { OnSignal(signal); });
    if (worker_.ranks != nullptr) worker_.ranks->SetWaker([this] { engine_.Wake(); });
    engine_.Start();
    if (keeper_ != nullptr) keeper_->Start();
    StartWatchdog();
    health_.SetListening(true);
    executor_.Post([this] { WatchHealth(); });
    executor_.Post([this, http_port] { SayReady(http_port); });
    return absl::OkStatus();
  }

  // The epoch belongs to this process alone, the id stays the same after a restart.
  void MakeHub(AttemptLog* attempt_log, AttemptTraces& traces) {
    WorkerHello hello = worker_.hello;
    RealRng rng;
    hello.epoch = Epoch(rng.Next());
    hello.worker_id = config_.worker_id;
    if (hello.worker_id.empty()) {
      hello.worker_id = OwnName(config_.listen, server_->port());
    }
    if (keeper_ != nullptr) hello.features.emplace_back(kFeatureAdapterOrders);
    traces.Start({.model = hello.served_names.front(),
                  .worker_id = hello.worker_id,
                  .epoch = hello.epoch.value(),
                  .unix_ns_at_zero = trace::UnixNsAtZero(executor_.clock().Now())});
    if (attempt_log != nullptr) attempt_log->Start(hello.epoch);
    hub_ = std::make_unique<AttachHub>(std::move(hello), executor_, engine_, log_, rpc_metrics_);
    hub_->SetCompiler(compiler_.get());
    if (compiler_ != nullptr) compiler_->Prepare();
    hub_->SetAdapterControl(keeper_.get());
    if (keeper_ != nullptr) hub_->ChangeAdapters(keeper_->Current());
    hub_->WatchOutputs([this](const EngineOutput& output) {
      vllm_metrics_.Take(output);
      if (keeper_ != nullptr) keeper_->Take(output);
    });
    hub_->LimitUnsentHashes(static_cast<size_t>(config_.max_unsent_events));
    hub_->SetEpochSource([attempt_log, &traces] {
      RealRng random;
      const Epoch epoch(random.Next());
      if (attempt_log != nullptr) attempt_log->SetEpoch(epoch);
      traces.SetEpoch(epoch);
      return epoch;
    });
    hub_->SetRefusalTaker([this, &traces](RouterInstance router, const Refused& refused) {
      traces.Write(refused, {router, executor_.clock().Now()});
    });
    hub_->SetRecordTaker([attempt_log, &traces](const AttemptRecord& record) {
      if (attempt_log != nullptr) attempt_log->Write(record);
      traces.Write(record);
    });
  }

  // Runs until the worker has left. Returns the exit code.
  int Run() {
    executor_.Run();
    if (leaving_.joinable()) leaving_.join();
    if (!clean_) std::_Exit(kExitFailed);  // the engine's thread will not end: nothing to wait for
    engine_.Stop();
    if (worker_.ranks != nullptr) worker_.ranks->Stop();  // they wake the engine's thread
    return kExitDone;
  }

 private:
  void MakeKeeper() {
    AdapterKeeperWorld world{executor_, loading_, job_metrics_, log_, *worker_.adapter_metrics};
    world.read = AdapterReads(config_, worker_.model->program, worker_.pack_adapter);
    world.push = [this](EngineCommand&& command) { return engine_.TryPush(std::move(command)); };
    world.tell = [this](AdaptersChanged changed) {
      if (hub_ != nullptr) hub_->ChangeAdapters(std::move(changed));
    };
    keeper_ = std::make_unique<AdapterKeeper>(KeeperOptionsOf(config_, worker_.hello.served_names),
                                              std::move(world), worker_.adapters);
  }

  // Before the engine has its thread.
  AdapterPlaced Place(AdapterCommand command) {
    const Micros now = executor_.clock().Now();
    worker_.engine->Apply(std::move(command), now);
    return worker_.engine->RunOnce(now).adapters.at(0);
  }

  // After the first token: a step that is slow from here on was fast before.
  void StartWatchdog() {
    WatchdogOptions options = config_.watchdog;
    options.on_stuck = [this](const std::string& what) {
      log_.Error("stuck; the stacks of all threads follow on standard error", {{"what", what}});
      stacks_.Write(STDERR_FILENO);
    };
    options.on_recovered = [this](const std::string& what) { log_.Info(what); };
    options.on_hopeless = [](const std::string& what) {
      std::fprintf(stderr, "quire-worker: %s\n", what.c_str());
      std::_Exit(kExitFailed);  // its threads do not end: nothing to wait for
    };
    watchdog_ = std::make_unique<Watchdog>(worker_.progress, executor_.clock(), options);
  }

  void WatchHealth() {
    if (leaving_.joinable()) return;  // the server may be gone
    server_->SetServing(health_.Serving().ok);
    executor_.PostAt(executor_.clock().Now() + kHealthInterval, [this] { WatchHealth(); });
  }

  void SayReady(int http_port) {
    const absl::StatusOr<HostPort> listen = ParseHostPort(config_.listen);
    const std::string wire = JoinHostPort(listen->host, server_->port());
    const std::string http = JoinHostPort(listen->host, http_port);
    json::Object line;
    line["listen"] = wire;
    line["http"] = http;
    line["model"] = worker_.hello.served_names.front();
    line["model_id"] = worker_.hello.model_id;
    line["memory"] = worker_.memory_line;
    line["planned_bytes"] = worker_.planned_bytes;
    line["format"] = worker_.makeup.format;
    line["family"] = worker_.makeup.family;
    line["quantisation"] = worker_.makeup.quantisation;
    line["parameters"] = worker_.makeup.parameters;
    line["max_model_len"] = worker_.hello.limits.max_model_len;
    const std::string text = json::Serialize(line) + "\n";
    if (config_.ready_fd >= 0) {
      if (write(config_.ready_fd, text.data(), text.size()) < 0) {
        log_.Warning("--ready-fd cannot be written to");
      }
      if (config_.ready_fd > 2) close(config_.ready_fd);
    }
    log_.Flush();
    std::printf("ready: %s serves %s to routers (%s); probes: curl http://%s/health\n",
                wire.c_str(), worker_.hello.served_names.front().c_str(),
                worker_.memory_line.c_str(), http.c_str());
    std::fflush(stdout);
  }

  void OnSignal(int signal) {
    const std::string name = signal == SIGTERM ? "SIGTERM" : "SIGINT";
    if (draining_) {
      std::fprintf(stderr, "quire-worker: a second signal (%s): leaving at once\n", name.c_str());
      std::_Exit(kExitFailed);
    }
    draining_ = true;
    health_.SetDraining();
    log_.Info("draining", {{"signal", name}, {"timeout_ms", config_.drain_timeout.milliseconds}});
    constexpr int64_t kHardLimitAfterMs = 30'000;
    const int64_t soft_ms = config_.drain_timeout.milliseconds;
    const int64_t hard_ms = config_.drain_hard_limit.milliseconds < 0
                                ? soft_ms + kHardLimitAfterMs
                                : config_.drain_hard_limit.milliseconds;
    const Micros now = executor_.clock().Now();
    hub_->Drain(now + soft_ms * kMicrosPerMilli, now + hard_ms * kMicrosPerMilli,
                [this](bool clean) {
                  clean_ = clean;
                  if (!clean) log_.Error("the engine did not end its work in time");
                  hub_->Close("this worker has left", [this] { Leave(); });
                });
  }

  // The shutdown waits for work on this thread, so that it needs another.
  void Leave() {
    leaving_ = std::thread([this] {
      server_->Shutdown();
      executor_.Stop();
    });
  }

  const WorkerConfig& config_;
  LoadedWorker& worker_;
  Health& health_;
  Logger& log_;
  AsioExecutor executor_;                        // before everything that uses its clock
  const std::shared_ptr<MemoryAccount> memory_;  // of routers
  RpcMetrics rpc_metrics_;
  AdapterJobMetrics job_metrics_;
  VllmMetrics vllm_metrics_;
  ThreadBackground background_{executor_, kBackgroundThreads, kMaxBackgroundWork};
  ThreadBackground compiling_;                    // constraints
  ThreadBackground loading_;                      // adapters
  std::unique_ptr<ConstraintCompiler> compiler_;  // null: none are served
  std::unique_ptr<AdapterKeeper> keeper_;         // null: adapters stay as they are
  std::unique_ptr<AttachHub> hub_;
  EngineThread engine_;
  std::unique_ptr<WorkerServer> server_;
  ThreadStacks stacks_;
  std::unique_ptr<Watchdog> watchdog_;
  std::thread leaving_;
  bool draining_ = false;
  bool clean_ = true;
};

int RunWorker(const WorkerConfig& config, const DeviceChoice& device,
              const trace::TraceSettings& tracing, Logger& log) {
  if (const absl::Status readable = CheckStartFiles(config); !readable.ok()) {
    return Fail(kExitBadArguments, StatusMessage(readable));
  }
  const RealClock clock;
  Metrics metrics;
  AddProcessMetrics(metrics, "quire-worker", clock.UnixSeconds());
  std::unique_ptr<AttemptLog> attempt_log;
  if (!config.request_log.empty()) {
    auto opened = AttemptLog::Open(config.request_log, clock, metrics);
    if (!opened.ok()) {
      return Fail(kExitBadArguments, StatusMessage(Annotate(opened.status(), "--request-log")));
    }
    attempt_log = *std::move(opened);
  }
  const trace::TraceMetrics trace_metrics(metrics, "quire_worker");
  std::unique_ptr<trace::Exporter> exporter = MakeExporter(tracing, trace_metrics, log);
  Health health(clock);
  WorkerLoader loader(config, device, clock, metrics, log);
  StartFailure failure;
  if (!loader.Prepare(failure)) return Fail(failure.exit_code, failure.message);

  std::unique_ptr<LoadedWorker> worker;  // goes after the server of the probes, which read it
  // Probes are answered while the weights load; the wire opens when a token has been produced.
  const absl::StatusOr<HostPort> listen = ParseHostPort(config.listen);
  HttpServerOptions http_options;
  http_options.host = AddressOf(*listen);
  http_options.port = config.http_port;
  http_options.health = &health;
  http_options.metrics = &metrics;
  http_options.version_json = VersionJson(config);
  http_options.evicted =
      &metrics.AddCounter({"quire_worker_probe_connections_evicted_total",
                           "Connections to the port for probes that gave way to newer ones."});
  if (const absl::Status free = CheckAddressFree(http_options.host, listen->port); !free.ok()) {
    return Fail(kExitFailed, StatusMessage(Annotate(free, kListenFlag)));
  }
  absl::StatusOr<std::unique_ptr<ProbeServer>> http = StartHttpServer(http_options);
  if (!http.ok()) return Fail(kExitFailed, StatusMessage(Annotate(http.status(), kHttpPortFlag)));

  worker = loader.Load(failure);
  if (worker == nullptr) return Fail(failure.exit_code, failure.message);
  health.SetProgress(&worker->progress);
  AddStepAges(metrics, worker->progress, clock);
  AddCertificateEnd(metrics, config.tls_cert_file);
  AttemptTraces traces(exporter.get(), tracing.sampler, log);
  Service service(config, *worker, health, metrics, log);
  if (const absl::Status started = service.Start((*http)->port(), attempt_log.get(), traces);
      !started.ok()) {
    return Fail(kExitFailed, StatusMessage(started));
  }
  const int exit_code = service.Run();
  http->reset();  // destroyed before the data that it reads
  // What others see ends here. The system takes weights and tables back faster than destructors do,
  // and a vocabulary that is still being read for grammars, which takes seconds, cannot be stopped.
  worker->engine.reset();
  worker->runner.reset();
  attempt_log.reset();
  exporter.reset();
  log.Flush();
  std::fflush(nullptr);
  std::_Exit(exit_code);
}

// Prints the plan, and does none of it.
int RunPlan(const WorkerConfig& config, const DeviceChoice& device, Logger& log) {
  const RealClock clock;
  Metrics metrics;
  WorkerLoader loader(config, device, clock, metrics, log);
  StartFailure failure;
  if (!loader.Prepare(failure)) return Fail(failure.exit_code, failure.message);
  std::printf("%s\n", PlanJson(loader.Report()).c_str());
  return kExitDone;
}

// A model file that is truncated while it is mapped, or a disk that fails, ends the process when
// the lost page is read: this handler reports it. A handler can reach only globals.
char bus_error_message[512];
size_t bus_error_size = 0;

void OnBusError(int /*signal*/) {
  [[maybe_unused]] const ssize_t said = write(STDERR_FILENO, bus_error_message, bus_error_size);
  _exit(kExitFailed);
}

void ExplainBusErrors(const std::string& model) {
  const int size = std::snprintf(
      bus_error_message, sizeof(bus_error_message),
      "%s: %.300s: a file of the model can no longer be read (cut short, or its disk failed) while "
      "it is in use; restore the file and start again\n",
      std::string(kProgram).c_str(), model.c_str());
  bus_error_size = std::min(static_cast<size_t>(size), sizeof(bus_error_message) - 1);
  signal(SIGBUS, OnBusError);
}

// A rank of another quire-worker. Its arguments follow the rank's own, and have been found valid
// once; errors are reported to that worker.
int RunRank(const RankProcessArgument& argument, const config::CommandLine& command) {
  if (!BecomeRankProcess(argument)) return kExitFailed;
  std::vector<const char*> arguments(command.argv, command.argv + command.argc);
  arguments.erase(arguments.begin() + 1);
  WorkerConfig settings;
  config::Schema schema = MakeWorkerSchema(settings);
  const config::ProgramStart start = config::StartProgram(
      kProgram, schema, {static_cast<int>(arguments.size()), arguments.data(), command.envp},
      [&] { return CheckWorkerConfig(settings); });
  if (start.exit_code) return *start.exit_code;
  settings.gpu.search_path = SearchPath(command.envp);
  ExplainBusErrors(settings.model);
  return ServeRankProcess(argument, MakeRankBuilder(settings)).ok() ? kExitDone : kExitFailed;
}

int Main(const config::CommandLine& command) {
  if (command.argc > 1) {
    if (const auto rank = ParseRankProcess(command.argv[1])) return RunRank(*rank, command);
  }
  WorkerConfig settings;
  config::Schema schema = MakeWorkerSchema(settings);
  const config::ProgramStart start =
      config::StartProgram(kProgram, schema, command, [&] { return CheckWorkerConfig(settings); });
  if (start.exit_code) return *start.exit_code;
  if (!settings.core_dumps) ForbidCoreDumps();
  settings.gpu.search_path = SearchPath(command.envp);
  settings.own_arguments.assign(command.argv + 1, command.argv + command.argc);
  const absl::Status found = UseNamedModel(config::EnvironmentFromMain(command.envp), settings);
  if (!found.ok()) return Fail(kExitModelUnusable, StatusMessage(found));
  signal(SIGPIPE, SIG_IGN);
  RaiseDescriptorLimit();  // a connection with TLS takes three
  ExplainBusErrors(settings.model);
  const std::unique_ptr<Logger> log =
      MakeLogger(LoggerOptionsFromFlags(settings.log_level, settings.log_format));
  for (const std::string& warning : start.warnings) log->Warning(warning);
  DeviceChoice device;
  StartFailure failure;
  if (!FindDevice(settings, *log, device, failure)) {
    return Fail(failure.exit_code, failure.message);
  }
  if (settings.plan) return RunPlan(settings, device, *log);
  const trace::TraceSettings tracing =
      trace::TraceSettingsOf(config::EnvironmentFromMain(command.envp), std::string(kProgram),
                             settings.otlp_traces_endpoint);
  for (const std::string& warning : tracing.warnings) log->Warning(warning);
  return RunWorker(settings, device, tracing, *log);
}

}  // namespace
}  // namespace quire

int main(int argc, char** argv, char** envp) { return quire::Main({argc, argv, envp}); }
