// The settings of a router, their flags, and what is checked before it listens.
//
// A value; filled in by main once.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "common/config/schema.h"
#include "common/status.h"
#include "router/batches/limits.h"
#include "router/core/request_limits.h"
#include "router/discovery/kubernetes_source.h"
#include "router/fleet/pools.h"
#include "router/front/front.h"
#include "router/grpc/services.h"
#include "router/http/services.h"
#include "router/loading/loading_pipeline.h"
#include "router/pipeline/make_pipeline.h"

namespace quire {

// Workers whose metrics one router shows.
inline constexpr size_t kMaxWorkerMetrics = 64;

struct RouterConfig {
  // A router closes old connections, so that clients spread over new routers.
  RouterConfig() {
    grpc.max_connection_age = 1800 * kMicrosPerSecond;
    grpc.max_connection_age_grace = 600 * kMicrosPerSecond;
  }

  // The settings that the rooms use; each default is the member's own. Values that flags do not set
  // are filled in at the start (router_process_asio.cc, process_options.h).
  FrontOptions front;  // of the ports for clients
  HttpLimits http;
  GrpcEdgeLimits grpc;
  RequestLimits requests;
  PipelineOptions pipeline;
  KubernetesOptions kubernetes;

  int32_t port = 8000;
  int32_t grpc_port = 8001;
  bool insecure = false;
  bool check = false;
  bool check_ports = false;
  std::string tls_cert_file;
  std::string tls_key_file;
  std::string worker_tls_ca_file;
  std::string worker_tls_cert_file;
  std::string worker_tls_key_file;
  std::string worker_tls_name = "quire-worker";
  config::Bytes max_client_memory{0};  // 0: by the machine (client_memory.h)
  config::Bytes max_tenant_memory{0};
  config::Bytes max_connection_memory{0};
  config::Bytes responses_store{0};
  std::string batches_dir;  // empty: files and batches are not served
  batches::Limits batches;
  std::vector<std::string> cors_allow_origins;
  std::vector<std::string> allowed_hosts;
  std::vector<std::string> trusted_proxies;
  bool metrics = true;
  int32_t metrics_port = -1;
  int32_t admin_port = -1;
  std::string admin_token_file;
  std::string api_key_file;
  std::vector<std::string> api_keys;
  std::string salt_key_file;

  std::vector<std::string> worker_metrics;  // HOST:PORT of probes, in the order of their labels
  std::vector<std::string> worker_files;    // paths
  std::vector<std::string> worker_dns;      // NAME:PORT
  std::string kubernetes_api_server = "https://kubernetes.default.svc";
  std::string kubernetes_service_account = "/var/run/secrets/kubernetes.io/serviceaccount";
  std::vector<std::string> model_aliases;      // NAME=SERVED
  std::vector<std::string> model_weights;      // NAME=MODEL_ID:WEIGHT,...
  std::vector<std::string> pinned_models;      // NAME=MODEL_ID
  std::vector<std::string> tool_call_parsers;  // NAME or MODEL=NAME
  std::vector<std::string> reasoning_parsers;  // NAME or MODEL=NAME

  config::Duration drain_delay{-1};  // not given: 5 s, on loopback none
  Micros drain_timeout = 30 * kMicrosPerSecond;
  int32_t ready_fd = -1;
  int32_t serve_fd = -1;            // the line to `quire serve`
  config::Duration keep_alive{-1};  // not given: the shelf's own
  LoadingOptions loading;
  bool core_dumps = false;
  std::string request_log;           // empty: none
  std::string otlp_traces_endpoint;  // empty: by OTEL_EXPORTER_OTLP_ENDPOINT, or none
  std::string log_level = "info";
  std::string log_format = "auto";
};

// The schema of quire-router; writes to `config`, which outlives it.
config::Schema MakeRouterSchema(RouterConfig& config);

// Checks that no single flag's range covers. INVALID_ARGUMENT names the flag and a value that
// works.
absl::Status CheckRouterConfig(const RouterConfig& config);

// Whether requests need an API key.
bool HasKeys(const RouterConfig& config);

// Aliases, pins and weights. INVALID_ARGUMENT names the flag.
absl::StatusOr<PoolRules> PoolRulesOf(const RouterConfig& config);

}  // namespace quire
