#include <signal.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>

#include "common/host_port.h"
#include "common/json/json.h"
#include "common/memory_limits.h"
#include "common/metrics/memory_metrics.h"
#include "common/metrics/process_metrics.h"
#include "common/runtime/asio_executor.h"
#include "router/admin/admin_routes.h"
#include "router/batch_service.h"
#include "router/chat/bundle_text.h"
#include "router/client_memory.h"
#include "router/discovery/fetch_asio.h"
#include "router/discovery/resolver.h"
#include "router/front/front.h"
#include "router/grpc/inference_server.h"
#include "router/grpc/oip/open_inference.h"
#include "router/link/dialer_asio.h"
#include "router/loading/loading_pipeline.h"
#include "router/loading/serve_line_asio.h"
#include "router/pipeline/make_pipeline.h"
#include "router/process_options.h"
#include "router/recent_text.h"
#include "router/records/request_log.h"
#include "router/records/trace_sink.h"
#include "router/responses/store.h"
#include "router/router_process.h"
#include "router/secrets.h"
#include "router/worker_discovery.h"
#include "router/worker_metrics.h"

namespace quire {
namespace {

constexpr int kBackgroundThreads = 3;  // large work has all but one
constexpr int kHandshakeThreads = 2;
// Work that waits for a background thread, in all and of one tenant.
constexpr WorkLimits kBackgroundWork = {.max_queued = 1024, .max_of_owner = 768};
constexpr Micros kWatchInterval = 20 * kMicrosPerMilli;
constexpr Micros kFlushTimeout = 2 * kMicrosPerSecond;  // at least, for last bytes
constexpr size_t kMaxAdminBody = 64u << 10;
constexpr Micros kGrpcGrace = kMicrosPerSecond;
constexpr int64_t kDefaultDrainDelayMs = 5000;

// For ports that speak HTTP/1.1 only.
void CloseHttp2(EdgeStream stream, const std::string&, const std::function<void()>& on_closed,
                const std::shared_ptr<ClientSeat>&) {
  stream.Close();
  on_closed();
}

}  // namespace

struct RouterProcess::State {
  State(const RouterConfig& router_config, const trace::TraceSettings& trace_settings,
        Logger& logger)
      : config(router_config),
        tracing(trace_settings),
        log(logger),
        counters(metrics),
        limit_counters(metrics),
        memory(MakeClientMemory(router_config, UsableMemory(ReadMemoryFiles("/")).usable_bytes)),
        trace_metrics(metrics, "quire_router"),
        background(executor, kBackgroundThreads, kBackgroundWork),
        dialer(MakeAsioDialer(executor, [this] { return worker_tls->current(); })),
        discovery_runtime{executor,
                          background,
                          files,
                          rng,
                          log,
                          [this](const std::string& source, std::vector<std::string> targets) {
                            pipeline->WorkersNamed(source, std::move(targets));
                          }} {}

  absl::Status ReadSecrets();
  absl::Status Check();
  absl::Status Start();
  absl::Status MakeResponseStore();
  std::unique_ptr<HttpServices> MakeHttpServices(const HttpLimits& limits);
  void MakeServices();
  absl::Status StartAdmin();
  absl::Status StartMetrics();
  void TraceRecords(PipelineOptions& options);
  void JoinServe();
  void ScrapeWorkers(const std::vector<serve::WorkerPlace>& places);
  std::unique_ptr<Fetcher> FetcherOf(const std::string& probes);
  // What the edges use.
  Pipeline& served() { return loading != nullptr ? *loading : *pipeline; }
  std::function<void(RecentText::Done)> MetricsText();
  void Watch();
  void SayReady();
  void OnSignal(int signal);
  void Drain();
  void AwaitEnd();
  void Leave();
  void CancelCalls() { grpc->CancelCalls(); }
  void After(Micros delay, void (State::*step)());

  const RouterConfig& config;
  const trace::TraceSettings tracing;
  Logger& log;
  Metrics metrics;
  EdgeMetrics counters;
  LimitCounters limit_counters;
  batches::BatchMetrics batch_metrics{metrics};
  const ClientMemory memory;
  std::unique_ptr<responses::Store> kept_responses;  // used with --responses-store
  trace::TraceMetrics trace_metrics;
  RealRng rng;
  AsioExecutor executor;
  ThreadBackground background;
  RealFiles files;
  std::unique_ptr<KeyRing> keys;
  std::unique_ptr<SaltKey> salt_key;
  TrustedProxies proxies;
  std::unique_ptr<TlsIdentity> tls;
  std::unique_ptr<ThreadBackground> handshakes;  // with tls
  std::unique_ptr<WorkerTlsFiles> worker_tls;
  std::unique_ptr<Dialer> dialer;
  std::unique_ptr<RequestLog> request_log;
  std::unique_ptr<RecentRequests> recent;
  std::unique_ptr<trace::Exporter> exporter;  // with tracing on
  std::unique_ptr<TraceSink> trace_sink;
  std::unique_ptr<Pipeline> pipeline;
  std::unique_ptr<LoadingPipeline> loading;  // with --serve-fd, like the line
  std::unique_ptr<ServeLine> serve_line;
  const DiscoveryRuntime discovery_runtime;
  std::unique_ptr<WorkerDiscovery> discovery;
  std::unique_ptr<Resolver> metrics_resolver;
  std::unique_ptr<WorkerMetrics> worker_metrics;
  std::unique_ptr<RecentText> recent_metrics;
  std::unique_ptr<HttpServices> http_services;
  std::unique_ptr<BatchService> batches;  // with --batches-dir
  std::unique_ptr<GrpcServices> grpc_services;
  std::unique_ptr<InferenceServer> grpc;
  std::unique_ptr<Front> front;
  std::unique_ptr<KeyRing> admin_keys;
  std::unique_ptr<AdminActions> admin_actions;
  std::unique_ptr<HttpServices> admin_services;
  std::unique_ptr<Front> admin_front;
  std::unique_ptr<HttpServices> metrics_services;  // with --metrics-port
  std::unique_ptr<Front> metrics_front;
  bool said_ready = false;
  bool draining = false;
  bool has_left = false;  // what is ours
  bool grpc_has_left = false;
  Micros drain_deadline = 0;
  Micros flush_deadline = 0;
};

RouterProcess::RouterProcess(const RouterConfig& config, const trace::TraceSettings& tracing,
                             Logger& log)
    : state_(std::make_unique<State>(config, tracing, log)) {}

RouterProcess::~RouterProcess() = default;

absl::Status RouterProcess::Check() { return state_->Check(); }

absl::Status RouterProcess::Start() { return state_->Start(); }

int RouterProcess::Run() {
  state_->executor.Run();
  if (state_->batches != nullptr) state_->batches->Stop();
  state_->background.Stop();  // the code that it runs reads services, keys and methods
  state_->metrics_front.reset();
  state_->admin_front.reset();
  state_->front.reset();
  state_->grpc.reset();
  state_->batches.reset();
  state_->discovery.reset();
  state_->serve_line.reset();
  state_->loading.reset();
  state_->pipeline.reset();
  return 0;
}

absl::Status RouterProcess::State::ReadSecrets() {
  const WatchedFiles::World watching{executor, background, files};
  QUIRE_ASSIGN_OR_RETURN(tls, MakeTlsIdentity(config, watching, counters, log));
  QUIRE_ASSIGN_OR_RETURN(worker_tls, WorkerTlsFiles::Make(config, watching, metrics, log));
  QUIRE_ASSIGN_OR_RETURN(keys, MakeKeyRing(config, watching, metrics, log));
  QUIRE_ASSIGN_OR_RETURN(salt_key, SaltKey::Make(config, watching, metrics, log));
  if (config.admin_port < 0) return absl::OkStatus();
  QUIRE_ASSIGN_OR_RETURN(admin_keys, MakeAdminRing(config, watching, metrics, log));
  return absl::OkStatus();
}

absl::Status RouterProcess::State::Check() {
  QUIRE_RETURN_IF_ERROR(ReadSecrets());
  if (!config.check_ports) return absl::OkStatus();
  const auto ports = FrontPorts::Bind(executor.context(), FrontOf(config));
  QUIRE_RETURN_IF_ERROR(ports.status());
  if (config.metrics_port >= 0) {
    QUIRE_RETURN_IF_ERROR(FrontPorts::Bind(executor.context(), MetricsFrontOf(config)).status());
  }
  if (config.admin_port < 0) return absl::OkStatus();
  return FrontPorts::Bind(executor.context(), AdminFrontOf(config)).status();
}

// Kept responses may take a half of what clients may hold, so that live requests have the rest.
absl::Status RouterProcess::State::MakeResponseStore() {
  const auto limit = static_cast<size_t>(config.responses_store.value);
  const size_t most = memory.process->limit() / 2;
  if (limit > most) {
    return InvalidArgument("--responses-store: must be at most " + std::to_string(most) +
                           ", a half of --max-client-memory-bytes, is " + std::to_string(limit));
  }
  kept_responses = std::make_unique<responses::Store>(limit, memory.process, metrics);
  return absl::OkStatus();
}

absl::Status RouterProcess::State::Start() {
  QUIRE_RETURN_IF_ERROR(ReadSecrets());
  QUIRE_RETURN_IF_ERROR(MakeResponseStore());
  QUIRE_ASSIGN_OR_RETURN(proxies, TrustedProxies::Parse(config.trusted_proxies));
  FrontOptions front_options = FrontOf(config);
  front_options.proxies = &proxies;
  front_options.tls = tls.get();
  if (tls != nullptr) {
    handshakes = std::make_unique<ThreadBackground>(executor, kHandshakeThreads,
                                                    front_options.max_tls_handshakes);
    front_options.handshakes = handshakes.get();
  }
  QUIRE_ASSIGN_OR_RETURN(FrontPorts ports, FrontPorts::Bind(executor.context(), front_options));
  PipelineOptions pipeline_options = config.pipeline;
  pipeline_options.text_factory = MakeBundleText;
  pipeline_options.salt_key = salt_key->current();
  pipeline_options.memory = memory.process;
  pipeline_options.max_tenant_memory_bytes = memory.tenant_bytes;
  QUIRE_ASSIGN_OR_RETURN(pipeline_options.pool_rules, PoolRulesOf(config));
  QUIRE_ASSIGN_OR_RETURN(pipeline_options.answer_rules,
                         AnswerRules::Read(config.tool_call_parsers, config.reasoning_parsers));
  if (!config.request_log.empty()) {
    auto opened = RequestLog::Open(config.request_log, executor.clock(), metrics);
    if (!opened.ok()) return Annotate(opened.status(), "--request-log");
    request_log = *std::move(opened);
  }
  recent = std::make_unique<RecentRequests>(executor.clock(), request_log.get());
  pipeline_options.records = recent.get();
  if (tracing.on) TraceRecords(pipeline_options);
  const PipelineRuntime runtime{executor, background, *dialer, rng, log, metrics};
  QUIRE_ASSIGN_OR_RETURN(pipeline, MakePipeline(std::move(pipeline_options), runtime));
  salt_key->Follow([this](const std::string& key) { pipeline->UseSaltKey(key); });
  QUIRE_ASSIGN_OR_RETURN(discovery,
                         WorkerDiscovery::Make(config, executor, discovery_runtime, metrics));
  if (config.serve_fd >= 0) JoinServe();
  MakeServices();
  QUIRE_ASSIGN_OR_RETURN(batches, BatchService::Make(config, *http_services, *keys, batch_metrics));
  front = std::make_unique<Front>(
      executor.context(), *http_services, front_options,
      [this](EdgeStream stream, std::string first_bytes, std::function<void()> on_closed,
             std::shared_ptr<ClientSeat> seat) {
        grpc->Adopt(std::move(stream), std::move(first_bytes), std::move(on_closed),
                    std::move(seat));
      });
  if (config.admin_port >= 0) QUIRE_RETURN_IF_ERROR(StartAdmin());
  if (config.metrics_port >= 0) QUIRE_RETURN_IF_ERROR(StartMetrics());
  front->Listen(std::move(ports));
  executor.OnTerminationSignal([this](int signal) { OnSignal(signal); });
  log.Info("listening", {{"http", JoinHostPort(config.front.host, front->ports()[0])},
                         {"grpc", JoinHostPort(config.front.host, front->ports()[1])},
                         {"workers", config.pipeline.workers.size()}});
  discovery->Start();
  if (batches != nullptr) batches->Start();
  executor.Post([this] { Watch(); });
  return absl::OkStatus();
}

std::unique_ptr<HttpServices> RouterProcess::State::MakeHttpServices(const HttpLimits& limits) {
  EdgeServices edge{executor, served(), background, rng, counters, log, QUIRE_VERSION};
  edge.memory = memory.process;
  return std::make_unique<HttpServices>(std::move(edge), limits);
}

// The inputs of the edges.
void RouterProcess::State::MakeServices() {
  http_services = MakeHttpServices(config.http);
  http_services->limits.max_connection_memory_bytes = memory.connection_bytes;
  http_services->request_limits = config.requests;
  http_services->request_limits.counters = &limit_counters;
  http_services->cors_origins = config.cors_allow_origins;
  if (keys->required()) http_services->keys = keys.get();
  http_services->operators = admin_keys.get();
  http_services->metrics_are_open = IsLoopback(config.front.host);
  http_services->fleet_is_open = !keys->required() && IsLoopback(config.front.host);
  http_services->guards_own_machine = http_services->fleet_is_open;
  http_services->allowed_hosts = config.allowed_hosts;
  http_services->request_view = [this](const std::string& id) {
    return RequestView(served(), *recent, executor, id);
  };
  if (config.responses_store.value > 0) http_services->responses = kept_responses.get();
  if (loading != nullptr) {
    http_services->models = loading.get();
    http_services->routes = &MachineRoutes();
  }
  AddMemoryMetrics(memory.process, {"quire_router_client_memory_", "clients", "the router"},
                   metrics);
  AddBackgroundMetrics(background, metrics);
  AddProcessMetrics(metrics, "quire-router", executor.clock().UnixSeconds());
  if (config.metrics) http_services->metrics_text = MetricsText();
  grpc_services =
      std::make_unique<GrpcServices>(GrpcServices{*http_services, GrpcEdgeLimitsOf(config)});
  grpc_services->limits.max_connection_memory_bytes = memory.connection_bytes;
  grpc = std::make_unique<InferenceServer>(*grpc_services);
  oip::AddOpenInference(*grpc_services, grpc->methods());
}

// Every record passes the traces first; the pipeline gives requests their place in one.
void RouterProcess::State::TraceRecords(PipelineOptions& options) {
  exporter =
      std::make_unique<trace::Exporter>(tracing, trace::HttpSender(tracing), trace_metrics, log);
  trace_sink = std::make_unique<TraceSink>(*exporter, trace::UnixNsAtZero(executor.clock().Now()),
                                           recent.get());
  options.records = trace_sink.get();
  options.sampler = tracing.sampler;
  log.Info("traces are exported", {{"to", trace::ShownUrl(tracing.url)}});
}

// Models of this machine are loaded when they are asked for; `quire serve` does it.
void RouterProcess::State::JoinServe() {
  LoadingOptions options = config.loading;
  options.shelf.keep_alive_is_given = config.keep_alive.milliseconds >= 0;
  if (options.shelf.keep_alive_is_given) {
    options.shelf.keep_alive = config.keep_alive.milliseconds * kMicrosPerMilli;
  }
  options.aliases = PoolRulesOf(config)->aliases;
  LoadingRuntime runtime{
      executor, log, metrics, [this](const serve::Order& order) { serve_line->Send(order); },
      [this](const std::vector<serve::WorkerPlace>& places) { ScrapeWorkers(places); }};
  loading = std::make_unique<LoadingPipeline>(*pipeline, std::move(options), std::move(runtime));
  serve_line =
      std::make_unique<ServeLine>(executor.context(), config.serve_fd, log, metrics,
                                  [this](const serve::News& news) { loading->Heard(news); });
}

std::unique_ptr<Fetcher> RouterProcess::State::FetcherOf(const std::string& probes) {
  return MakeAsioFetcher({.server = "http://" + probes, .token_file = "", .ca_file = ""},
                         executor.context(), *metrics_resolver, files);
}

void RouterProcess::State::ScrapeWorkers(const std::vector<serve::WorkerPlace>& places) {
  if (worker_metrics == nullptr) return;
  std::vector<WorkerMetrics::Worker> workers;
  for (const serve::WorkerPlace& place : places) {
    if (workers.size() == kMaxWorkerMetrics || !CheckTarget(place.probes).ok()) continue;
    workers.push_back({place.label, FetcherOf(place.probes)});
  }
  worker_metrics->Replace(std::move(workers));
}

std::function<void(RecentText::Done)> RouterProcess::State::MetricsText() {
  if (config.worker_metrics.empty() && loading == nullptr) {
    (void)WorkerMetricsFailures(metrics);
    recent_metrics = std::make_unique<RecentText>(
        executor.clock(), memory.process,
        [this](const RecentText::Made& done) { done(metrics.Render()); });
    return [this](auto done) { recent_metrics->Ask(std::move(done)); };
  }
  metrics_resolver = MakeThreadResolver(executor, LookUpBySystem);
  std::vector<std::unique_ptr<Fetcher>> fetchers;
  for (const std::string& probes : config.worker_metrics) fetchers.push_back(FetcherOf(probes));
  worker_metrics = std::make_unique<WorkerMetrics>(std::move(fetchers), metrics, executor);
  recent_metrics = std::make_unique<RecentText>(
      executor.clock(), memory.process,
      [this](RecentText::Made done) { worker_metrics->Ask(std::move(done)); });
  return [this](auto done) { recent_metrics->Ask(std::move(done)); };
}

absl::Status RouterProcess::State::StartAdmin() {
  admin_actions = std::make_unique<AdminActions>(AdminActions{*recent,
                                                              [this] {
                                                                if (!draining) OnSignal(SIGTERM);
                                                              },
                                                              [this] { return draining; }});
  HttpLimits limits = config.http;
  limits.max_body_bytes = kMaxAdminBody;
  admin_services = MakeHttpServices(limits);
  admin_services->routes = &AdminRoutes();
  admin_services->admin = admin_actions.get();
  admin_services->keys = admin_keys.get();
  admin_front = std::make_unique<Front>(executor.context(), *admin_services, AdminFrontOf(config),
                                        CloseHttp2);
  QUIRE_RETURN_IF_ERROR(admin_front->Listen());
  log.Info("listening for operators",
           {{"admin", JoinHostPort("127.0.0.1", admin_front->ports()[0])}});
  return absl::OkStatus();
}

absl::Status RouterProcess::State::StartMetrics() {
  HttpLimits limits = config.http;
  limits.max_body_bytes = kMaxAdminBody;
  metrics_services = MakeHttpServices(limits);
  metrics_services->routes = &MetricsRoutes();
  metrics_services->metrics_text = http_services->metrics_text;
  metrics_services->metrics_are_open = true;
  metrics_front = std::make_unique<Front>(executor.context(), *metrics_services,
                                          MetricsFrontOf(config), CloseHttp2);
  return metrics_front->Listen();
}

void RouterProcess::State::After(Micros delay, void (State::*step)()) {
  executor.PostAt(executor.clock().Now() + delay, [this, step] { (this->*step)(); });
}

// Until the first worker would serve a request.
void RouterProcess::State::Watch() {
  if (draining) return;
  if (served().Ready() && served().Healthy()) {
    SayReady();
  } else {
    After(kWatchInterval, &State::Watch);
  }
}

void RouterProcess::State::SayReady() {
  const std::string http = JoinHostPort(config.front.host, front->ports()[0]);
  const std::string scheme = tls == nullptr ? "http" : "https";
  json::Object line;
  line["scheme"] = scheme;
  line["listen"] = http;
  line["grpc"] = JoinHostPort(config.front.host, front->ports()[1]);
  if (admin_front) line["admin"] = JoinHostPort("127.0.0.1", admin_front->ports()[0]);
  if (metrics_front) line["metrics"] = JoinHostPort(config.front.host, metrics_front->ports()[0]);
  const std::string text = json::Serialize(line) + "\n";
  if (config.ready_fd >= 0) {
    if (write(config.ready_fd, text.data(), text.size()) < 0) {
      log.Warning("--ready-fd cannot be written to");
    }
    if (config.ready_fd > 2) close(config.ready_fd);
    return;  // the supervisor announces it
  }
  const std::vector<ModelEntry> models = served().Models();
  const std::string model = models.empty() ? "" : models.front().name;
  std::printf(
      "ready: %s://%s serves %s\n"
      "  curl %s://%s/v1/completions -H 'Content-Type: application/json' "
      "-d '{\"model\": \"%s\", \"prompt\": \"Once upon a time\", \"max_tokens\": 40}'\n",
      scheme.c_str(), http.c_str(), model.c_str(), scheme.c_str(), http.c_str(), model.c_str());
  std::fflush(stdout);
}

void RouterProcess::State::OnSignal(int signal) {
  if (draining) {
    log.Warning("second signal: leaving at once");
    std::_Exit(1);
  }
  draining = true;
  int64_t delay_ms = config.drain_delay.milliseconds;
  if (delay_ms < 0) delay_ms = IsLoopback(config.front.host) ? 0 : kDefaultDrainDelayMs;
  log.Info("draining",
           {{"signal", signal}, {"delay_ms", delay_ms}, {"requests", served().LiveRequests()}});
  http_services->leaving = true;
  if (batches != nullptr) batches->Leave();
  if (metrics_services) metrics_services->leaving = true;
  grpc->StartDraining();
  After(delay_ms * kMicrosPerMilli, &State::Drain);
}

void RouterProcess::State::Drain() {
  served().StartDraining();
  front->StartDraining();
  drain_deadline = executor.clock().Now() + config.drain_timeout;
  // Asks clients to go elsewhere with new requests, and waits for running calls.
  grpc->Shutdown(config.drain_timeout + 2 * kFlushTimeout, [this] {
    grpc_has_left = true;
    if (has_left) executor.Stop();
  });
  AwaitEnd();
}

void RouterProcess::State::AwaitEnd() {
  const Micros now = executor.clock().Now();
  if (served().LiveRequests() == 0) {
    if (flush_deadline == 0) flush_deadline = std::max(drain_deadline, now + kFlushTimeout);
    if (front->http_connections() == 0 || now >= flush_deadline) {
      Leave();
      return;
    }
  } else if (now >= drain_deadline) {
    log.Warning("--drain-timeout has passed: running requests are ended",
                {{"requests", served().LiveRequests()}});
    served().EndAll({ApiCode::kUnavailable,
                     "this router is shutting down; another one can go on with the answer", "",
                     1000});
  }
  After(kWatchInterval, &State::AwaitEnd);
}

// Output that its client has not read yet has a moment more; watched health checks would never end.
void RouterProcess::State::Leave() {
  has_left = true;
  if (grpc_has_left) return executor.Stop();
  After(kGrpcGrace, &State::CancelCalls);
}

}  // namespace quire
