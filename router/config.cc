#include "router/config.h"

#include "common/config/common_flags.h"
#include "router/http2_flags.h"
#include "router/limit_flags.h"

namespace quire {
namespace {

constexpr double kDayMs = 24 * 3600e3;

void AddPortFlags(config::Schema& schema, RouterConfig& c) {
  schema.Group("Ports");
  schema.Add({.name = "host",
              .help = "IP address to listen on; off loopback it needs API keys or --insecure.",
              .target = &c.front.host,
              .value_name = "ADDRESS"});
  schema.Add({.name = "port",
              .help = "Port for HTTP; it speaks gRPC too. 0 lets the system choose.",
              .target = &c.port,
              .min = 0,
              .max = 65535});
  schema.Add({.name = "grpc-port",
              .help = "Port for gRPC; it speaks HTTP too. 0 lets the system choose.",
              .target = &c.grpc_port,
              .min = 0,
              .max = 65535});
  schema.Add({.name = "insecure",
              .help = "Listen off loopback without keys: whoever reaches the port can use it.",
              .target = &c.insecure});
  schema.Add({.name = "cors-allow-origin",
              .help =
                  "Origin whose pages may read answers in a browser, as https://chat.example, or "
                  "* for all.",
              .target = &c.cors_allow_origins,
              .value_name = "ORIGIN",
              .default_text = "none"});
  schema.Add({.name = "allowed-hosts",
              .help = "Name that a request may call this server by, beside localhost and IP "
                      "addresses, where it listens on loopback and asks for no key; * for all.",
              .target = &c.allowed_hosts,
              .value_name = "NAME",
              .default_text = "none"});
  schema.Add({.name = "trusted-proxies",
              .help = "Addresses of proxies that say whom they speak for, by the PROXY protocol or "
                      "X-Forwarded-For, as 10.0.0.0/8. List none that pass on what their clients "
                      "send first without a word of their own.",
              .target = &c.trusted_proxies,
              .value_name = "CIDR",
              .default_text = "none"});
  schema.Add({.name = "metrics", .help = "Serve /metrics.", .target = &c.metrics});
  schema.Add({.name = "metrics-port",
              .help =
                  "Port for metrics and probes alone, in the clear and open to whoever reaches it. "
                  "Without it /metrics is open on loopback; elsewhere it asks for the admin token. "
                  "0 lets the system choose.",
              .target = &c.metrics_port,
              .min = -1,
              .max = 65535,
              .default_text = "none"});
}

void AddAdminFlags(config::Schema& schema, RouterConfig& c) {
  schema.Group("Admin");
  schema.Add({.name = "admin-port",
              .help =
                  "Port on 127.0.0.1 for operators: workers, log level, drain, what became of a "
                  "request (router/README.md). 0 lets the system choose.",
              .target = &c.admin_port,
              .min = -1,
              .max = 65535,
              .default_text = "none"});
  schema.Add({.name = "admin-token-file",
              .help = "File with the token that the admin port asks for, as Authorization: Bearer. "
                      "Read again when it changes.",
              .target = &c.admin_token_file,
              .value_name = "FILE"});
}

void AddTlsFlags(config::Schema& schema, RouterConfig& c) {
  schema.Group("TLS");
  config::AddCertificateFlags(schema,
                              "clients and those that vouch for it; both ports speak TLS only. "
                              "Read again when it changes.",
                              c.tls_cert_file, c.tls_key_file);
  schema.Add({.name = "ssl-certfile",
              .help = "Another name of --tls-cert-file.",
              .target = &c.tls_cert_file,
              .value_name = "FILE"});
  schema.Add({.name = "ssl-keyfile",
              .help = "Another name of --tls-key-file.",
              .target = &c.tls_key_file,
              .value_name = "FILE"});
  schema.Add({.name = "max-tls-handshakes",
              .help =
                  "TLS handshakes that are under way at once; beyond it the oldest one that waits "
                  "for its client is closed.",
              .target = &c.front.max_tls_handshakes,
              .min = 1,
              .max = 1 << 20});
}

void AddWorkerTlsFlags(config::Schema& schema, RouterConfig& c) {
  schema.Add({.name = "worker-tls-ca-file",
              .help = "PEM file with the authorities whose certificates workers must show: two "
                      "while one takes over from the other. Read again when it changes.",
              .target = &c.worker_tls_ca_file,
              .value_name = "FILE",
              .default_text = "none: workers are dialled in the clear"});
  schema.Add({.name = "worker-tls-cert-file",
              .help = "PEM file with the certificate to show workers.",
              .target = &c.worker_tls_cert_file,
              .value_name = "FILE"});
  schema.Add({.name = "worker-tls-key-file",
              .help = "PEM file with that certificate's private key.",
              .target = &c.worker_tls_key_file,
              .value_name = "FILE"});
  schema.Add({.name = "worker-tls-name",
              .help = "Subject alternative name that a worker's certificate must have, at whatever "
                      "address it is dialled.",
              .target = &c.worker_tls_name,
              .value_name = "NAME"});
}

void AddKeyFlags(config::Schema& schema, RouterConfig& c) {
  schema.Group("Keys");
  schema.Add({.name = "api-key-file",
              .help = "JSON file of hashed API keys with their tenants, limits and models "
                      "(docs/api-keys.md); read again when it changes.",
              .target = &c.api_key_file,
              .value_name = "FILE",
              .default_text = "none: everyone is served"});
  schema.Add({.name = "api-key",
              .help =
                  "A key of the tenant 'default', which has no limits, to try things out: other "
                  "users of the machine may read it off the process list, unless it comes from the "
                  "environment.",
              .target = &c.api_keys,
              .value_name = "KEY",
              .secret = true});
  schema.Add({.name = "salt-key-file",
              .help = "File with the secret that keeps tenants' cached prompts apart, the same for "
                      "all routers; needed with --api-key-file. Read again when it changes.",
              .target = &c.salt_key_file,
              .value_name = "FILE",
              .default_text = "a key that everyone knows; with --api-key a random one"});
}

// Of one request; their upper bounds are what the rest of the program is made for.
void AddAdmissionFlags(config::Schema& schema, RouterConfig& c) {
  schema.Add({.name = "max-queued-requests",
              .help = "Requests that wait for room at a worker; more are refused with 503, those "
                      "of the tenant with most of them first.",
              .target = &c.pipeline.limits.max_queued_requests,
              .min = 1,
              .max = 1 << 20});
  schema.Add({.name = "max-queued-per-tenant",
              .help = "The same for each tenant; 0 leaves it at --max-queued-requests.",
              .target = &c.pipeline.limits.max_queued_per_tenant,
              .min = 0,
              .max = 1 << 20});
  schema.Add({.name = "max-prefill-ahead",
              .help = "Prompt tokens that a worker may have before it while more requests go to "
                      "it; beyond that they wait here, where their order is fair.",
              .target = &c.pipeline.limits.max_prefill_ahead,
              .min = 1,
              .max = 1ll << 40});
  schema.Add({.name = "max-journal-bytes",
              .help = "Memory for the tokens of running answers, kept to carry them on; at the "
                      "limit new requests are refused with 503.",
              .target = config::InBytes(&c.pipeline.limits.max_journal_bytes),
              .min = 1 << 16,
              .max = 1ll << 40});
}

void AddDiscoveryFlags(config::Schema& schema, RouterConfig& c) {
  schema.Group("Finding workers");
  schema.Add({.name = "worker",
              .help = "A worker to send requests to.",
              .target = &c.pipeline.workers,
              .value_name = "HOST:PORT"});
  schema.Add({.name = "worker-metrics",
              .help = "Port of a worker's probes whose metrics /metrics shows too, under the label "
                      "engine: its place in this list. For routers that are their workers' only "
                      "door.",
              .target = &c.worker_metrics,
              .value_name = "HOST:PORT"});
  schema.Add({.name = "worker-file",
              .help = "A file with a HOST:PORT on each line; it is watched.",
              .target = &c.worker_files,
              .value_name = "PATH"});
  schema.Add({.name = "worker-dns",
              .help = "A name of which every address is a worker; it is resolved again every 5 s.",
              .target = &c.worker_dns,
              .value_name = "NAME:PORT"});
  schema.Add({.name = "worker-k8s",
              .help = "A Kubernetes service, or labels of EndpointSlices, whose endpoints are "
                      "workers; of two services: kubernetes.io/service-name in (a,b).",
              .target = &c.kubernetes.selector,
              .value_name = "SERVICE|SELECTOR"});
  schema.Add({.name = "worker-k8s-namespace",
              .help = "Where that service is.",
              .target = &c.kubernetes.name_space,
              .value_name = "NAMESPACE",
              .default_text = "the pod's own"});
  schema.Add({.name = "worker-k8s-port",
              .help = "Name or number of the workers' port.",
              .target = &c.kubernetes.port,
              .value_name = "PORT",
              .default_text = "the only one, or the one named wire"});
  schema.Add({.name = "k8s-api-server",
              .help = "URL of the Kubernetes API; a token is sent over https only.",
              .target = &c.kubernetes_api_server,
              .value_name = "URL"});
  schema.Add({.name = "k8s-service-account",
              .help = "Directory with the token, ca.crt and namespace of a service account.",
              .target = &c.kubernetes_service_account,
              .value_name = "PATH"});
}

// Which model a name stands for.
void AddModelFlags(config::Schema& schema, RouterConfig& c) {
  schema.Group("Models");
  schema.Add({.name = "model-alias",
              .help = "Another name for a served one.",
              .target = &c.model_aliases,
              .value_name = "NAME=SERVED"});
  schema.Add({.name = "model-weights",
              .help = "Shares of new requests while several models are served under one name; "
                      "without it each has its share of ready rows. A model_id may be given by "
                      "its beginning; those left out get nothing.",
              .target = &c.model_weights,
              .value_name = "NAME=MODEL_ID:WEIGHT,..."});
  schema.Add({.name = "pin-model",
              .help = "The only model of a name: workers that serve another one under it are "
                      "refused.",
              .target = &c.pinned_models,
              .value_name = "NAME=MODEL_ID"});
  schema.Add({.name = "tool-call-parser",
              .help = "How a model writes tool calls, in place of what its chat template says: " +
                      dialect::DialectNames() + ", or none.",
              .target = &c.tool_call_parsers,
              .value_name = "[MODEL=]NAME"});
  schema.Add({.name = "reasoning-parser",
              .help = "How a model writes its thoughts, in place of what its chat template says: " +
                      dialect::ThoughtsNames() + ".",
              .target = &c.reasoning_parsers,
              .value_name = "[MODEL=]NAME"});
}

void AddWorkerFlags(config::Schema& schema, RouterConfig& c) {
  schema.Group("Workers");
  const Policy& usual = Policies().front();
  std::vector<std::pair<std::string, const Policy*>> policies;
  for (const Policy& policy : Policies()) policies.emplace_back(policy.name, &policy);
  schema.Add(
      {.name = "routing-policy",
       .help = "How a worker is chosen: " + std::string(usual.name) + " " + std::string(usual.help),
       .target = config::OneOf(&c.pipeline.policy, std::move(policies))});
  schema.Add({.name = "max-index-bytes",
              .help = "Memory for what workers have cached; a worker that needs more counts as one "
                      "that has nothing.",
              .target = config::InBytes(&c.pipeline.limits.max_index_bytes),
              .min = 1 << 20,
              .max = 1ll << 40});
  schema.Add({.name = "max-snapshots",
              .help = "Workers that are asked at once for all that they have cached; others wait.",
              .target = &c.pipeline.limits.max_snapshots,
              .min = 1,
              .max = 1024});
  schema.Add({.name = "window-tokens",
              .help = "Tokens that a worker may be ahead of what a client has taken of a choice; "
                      "then it goes on with others.",
              .target = &c.pipeline.limits.window_tokens,
              .min = 4,
              .max = 1 << 20});
  schema.Add({.name = "generation-config",
              .help = "Sampling defaults where a request is silent: auto takes the model's own "
                      "generation settings, vllm the API's neutral ones. The model's "
                      "end-of-sequence ids hold with both.",
              .target = config::OneOf(&c.pipeline.generation_defaults,
                                      {{"auto", true}, {"vllm", false}})});
  schema.Add({.name = "worker-silence-ms",
              .help = "Milliseconds without a word after which a worker is taken out.",
              .target = &c.pipeline.link.silence_ms,
              .min = 100,
              .max = 600'000});
  schema.Add({.name = "empty-pool-wait",
              .help = "Time that requests and answers under way wait for a worker when a model has "
                      "none; then 503, or an error event. Minutes for pools that scale to zero.",
              .target = config::InMillis(&c.pipeline.limits.empty_pool_wait_ms),
              .min = 0,
              .max = kDayMs});
  schema.Add({.name = "ready-without-workers",
              .help =
                  "/readyz is 200 also while there is no worker, so that requests come and wait "
                  "--empty-pool-wait: for pools that scale to zero. /health stays as it is.",
              .target = &c.pipeline.ready_without_workers});
}

void AddFailoverFlags(config::Schema& schema, RouterConfig& c) {
  schema.Group("Lost workers");
  schema.Add(
      {.name = "carry-on",
       .help = "Where an answer goes on whose worker is gone: tokens prefers a worker that "
               "computes the same bits and takes any other for want of one; exact waits for "
               "such a worker.",
       .target = config::OneOf(&c.pipeline.carry_on_mode, {{"tokens", CarryOnMode::kTokens},
                                                           {"exact", CarryOnMode::kExact}})});
  schema.Add({.name = "max-carry-on-tokens",
              .help = "Tokens that a worker may have to compute again at once for answers that it "
                      "takes over; more of them wait, and new requests behind them.",
              .target = &c.pipeline.limits.max_carry_on_tokens,
              .min = 1,
              .max = 1 << 30});
  schema.Add({.name = "placement-retry-percent",
              .help = "Requests in a hundred that may be offered to another worker after one has "
                      "refused them.",
              .target = &c.pipeline.limits.placement_retry_percent,
              .min = 0,
              .max = 100});
  schema.Add({.name = "max-worker-deaths",
              .help = "Workers that may die under one prompt, in one request or several; then it "
                      "ends with request_suspect and is refused for 10 minutes.",
              .target = &c.pipeline.limits.max_worker_deaths,
              .min = 1,
              .max = 1000});
  schema.Add({.name = "max-suspect-prompts",
              .help = "Prompts under which workers died that are remembered for 10 minutes after "
                      "their requests; at the limit the oldest is forgotten.",
              .target = &c.pipeline.limits.max_suspect_prompts,
              .min = 1,
              .max = 1 << 20});
}

// Under `quire serve` alone.
void AddMachineFlags(config::Schema& schema, RouterConfig& c) {
  schema.Group("Models of this machine");
  schema.Add({.name = "keep-alive",
              .help = "Under quire serve: time after which an idle model is unloaded.",
              .target = &c.keep_alive,
              .min = 0,
              .max = 365 * kDayMs,
              .default_text = "5m; never with one MODEL"});
  schema.Add({.name = "max-loaded-models",
              .help = "Under quire serve: models that are loaded at once; the one used least "
                      "recently gives way.",
              .target = &c.loading.shelf.max_loaded,
              .min = 1,
              .max = 64});
  schema.Add({.name = "load-timeout",
              .help = "Under quire serve: longest time that a request waits for its model to load.",
              .target = config::InMicros(&c.loading.load_timeout),
              .min = 1,
              .max = kDayMs});
  schema.Add({.name = "max-pull-bytes",
              .help = "Under quire serve: bytes that a model may have which a client pulls over "
                      "the API.",
              .target = config::InBytes(&c.loading.max_pull_bytes),
              .min = 1,
              .max = 1ll << 50});
  schema.Add({.name = "max-load-queue",
              .help = "Under quire serve: requests that wait for models to load; more are refused "
                      "with 503.",
              .target = &c.loading.max_held,
              .min = 1,
              .max = 1 << 20});
}

void AddProcessFlags(config::Schema& schema, RouterConfig& c) {
  schema.Group("Process");
  schema.Add({.name = "drain-delay",
              .help = "Time after SIGTERM in which the router says that it is not ready and still "
                      "takes requests, for load balancers to notice.",
              .target = &c.drain_delay,
              .min = -1,
              .max = kDayMs,
              .default_text = "5s; 0s on loopback"});
  schema.Add({.name = "drain-timeout",
              .help = "Time for running requests to end after that.",
              .target = config::InMicros(&c.drain_timeout),
              .min = 0,
              .max = kDayMs});
  schema.Add({.name = "check",
              .help = "Says what is wrong with the settings, or with the files that hold keys and "
                      "certificates, and leaves without listening.",
              .target = &c.check});
  schema.Add({.name = "check-ports",
              .help = "With --check: says, too, which port cannot be had.",
              .target = &c.check_ports});
  config::AddReadyFlag(schema, c.ready_fd);
  schema.Add({.name = "serve-fd",
              .help = "Descriptor of the line to quire serve.",
              .target = &c.serve_fd,
              .min = -1,
              .max = 1 << 20,
              .hidden = true});
  config::AddCoreDumpsFlag(schema, c.core_dumps);
  config::AddRequestLogFlag(
      schema, "request that has ended: its tenant, tokens, attempts and times", c.request_log);
  config::AddTracesFlag(schema, c.otlp_traces_endpoint);
  config::AddLogFlags(schema, c.log_level, c.log_format);
}

}  // namespace

config::Schema MakeRouterSchema(RouterConfig& config) {
  config::Schema schema("quire-router",
                        "Serves clients over HTTP and gRPC, and sends their requests to workers.");
  AddPortFlags(schema, config);
  AddAdminFlags(schema, config);
  AddTlsFlags(schema, config);
  AddWorkerTlsFlags(schema, config);
  AddKeyFlags(schema, config);
  AddLimitFlags(schema, config);
  AddHttp2Flags(schema, config);
  AddAdmissionFlags(schema, config);
  AddDiscoveryFlags(schema, config);
  AddWorkerFlags(schema, config);
  AddFailoverFlags(schema, config);
  AddModelFlags(schema, config);
  AddMachineFlags(schema, config);
  AddProcessFlags(schema, config);
  return schema;
}

}  // namespace quire
