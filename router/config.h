// What a router can be told: the settings, their flags, and what is checked before listening.
//
// A value; filled in by main once.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "common/config/schema.h"
#include "common/status.h"
#include "router/fleet/pools.h"

namespace quire {

// Workers whose metrics one router shows.
inline constexpr size_t kMaxWorkerMetrics = 64;

// What one HTTP/2 connection may send each second (http2_flags.h).
struct Http2Rates {
  int32_t new_streams = 1000;
  int32_t resets = 100;
  int32_t pings = 20;
  int32_t settings = 2;
  int32_t window_updates = 20'000;
  int32_t continuations = 100;
  int32_t empty_data = 1000;
  int32_t other_frames = 100;
  int32_t header_bytes = 2 << 20;
  int32_t decoded_header_bytes = 4 << 20;
};

struct RouterConfig {
  std::string host = "127.0.0.1";
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
  int32_t max_tls_handshakes = 256;
  int32_t max_connections = 4096;
  int32_t max_connections_per_address = 0;
  config::Bytes max_header{64 << 10};
  config::Bytes max_body{32 << 20};
  config::Bytes max_total_body{1 << 30};
  config::Bytes max_client_memory{0};  // 0: by the machine (client_memory.h)
  config::Bytes max_tenant_memory{0};
  config::Bytes max_connection_memory{0};
  config::Bytes max_response{16 << 20};
  int32_t max_streams_per_connection = 256;
  int32_t max_requests_per_call = 256;
  Http2Rates http2;
  int32_t max_prompts = 1024;
  int32_t max_messages = 16'384;
  int32_t max_json_depth = 64;
  int32_t max_json_values = 1 << 20;
  config::Bytes max_prompt{16 << 20};
  int32_t max_choices = 128;
  int32_t max_request_choices = 1024;
  int32_t max_stop_strings = 16;
  int32_t max_logit_bias = 300;
  std::vector<std::string> cors_allow_origins;
  std::vector<std::string> allowed_hosts;
  std::vector<std::string> trusted_proxies;
  config::Duration header_timeout{10'000};
  config::Duration body_timeout{60'000};
  config::Duration idle_timeout{75'000};
  config::Duration slow_client_timeout{30'000};
  config::Bytes slow_client_rate{4096};
  config::Duration max_connection_age{1'800'000};
  config::Duration max_connection_age_grace{600'000};
  config::Duration sse_commit_after{10'000};
  config::Duration stream_keep_alive{15'000};
  bool metrics = true;
  int32_t metrics_port = -1;
  int32_t admin_port = -1;
  std::string admin_token_file;
  std::string api_key_file;
  std::vector<std::string> api_keys;
  std::string salt_key_file;

  std::vector<std::string> workers;         // HOST:PORT
  std::vector<std::string> worker_metrics;  // HOST:PORT of probes, in the order of their labels
  std::vector<std::string> worker_files;    // paths
  std::vector<std::string> worker_dns;      // NAME:PORT
  std::string worker_kubernetes;            // a service's name, or labels
  std::string worker_kubernetes_namespace;
  std::string worker_kubernetes_port;
  std::string kubernetes_api_server = "https://kubernetes.default.svc";
  std::string kubernetes_service_account = "/var/run/secrets/kubernetes.io/serviceaccount";
  std::vector<std::string> model_aliases;  // NAME=SERVED
  std::vector<std::string> model_weights;  // NAME=MODEL_ID:WEIGHT,...
  std::vector<std::string> pinned_models;  // NAME=MODEL_ID
  std::string routing_policy = "prefix-aware";
  config::Bytes max_index{256 << 20};
  int32_t max_snapshots = 4;
  int32_t window_tokens = 256;
  std::string generation_config = "auto";
  int32_t worker_silence_ms = 2000;
  std::string carry_on = "tokens";
  int32_t max_carry_on_tokens = 8192;
  int32_t placement_retry_percent = 10;
  int32_t max_worker_deaths = 3;
  int32_t max_suspect_prompts = 1024;
  config::Duration empty_pool_wait{1500};
  bool ready_without_workers = false;
  int32_t max_live_requests = 4096;
  int32_t max_queued_requests = 1024;
  int32_t max_queued_per_tenant = 0;
  int64_t max_prefill_ahead = 65'536;
  config::Bytes max_journal{256 << 20};

  config::Duration drain_delay{-1};  // not given: 5 s, on loopback none
  config::Duration drain_timeout{30'000};
  int32_t ready_fd = -1;
  bool core_dumps = false;
  std::string request_log;           // empty: none
  std::string otlp_traces_endpoint;  // empty: by OTEL_EXPORTER_OTLP_ENDPOINT, or none
  std::string log_level = "info";
  std::string log_format = "auto";
};

// The schema of quire-router; writes to `config`, which outlives it.
config::Schema MakeRouterSchema(RouterConfig& config);

// What no single flag's range says. INVALID_ARGUMENT names the flag and a value that works.
absl::Status CheckRouterConfig(const RouterConfig& config);

// Whether requests need an API key.
bool HasKeys(const RouterConfig& config);

// Aliases, pins and weights. INVALID_ARGUMENT names the flag.
absl::StatusOr<PoolRules> PoolRulesOf(const RouterConfig& config);

// "[::1]:9000", "127.0.0.1:9000".
std::string HostAndPort(const std::string& host, int port);

}  // namespace quire
