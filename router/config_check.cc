// Checks that no single flag's range covers.
#include "common/host_port.h"
#include "router/config.h"
#include "router/discovery/fetch_asio.h"
#include "router/front/front.h"

namespace quire {
namespace {

absl::Status CheckDiscovery(const RouterConfig& c) {
  if (c.pipeline.workers.empty() && c.worker_files.empty() && c.worker_dns.empty() &&
      c.kubernetes.selector.empty() && c.serve_fd < 0) {
    return InvalidArgument(
        "--worker is missing; give at least one, as in --worker 127.0.0.1:9000, or one of "
        "--worker-file, --worker-dns and --worker-k8s");
  }
  for (const std::string& worker : c.pipeline.workers) {
    QUIRE_RETURN_IF_ERROR(Annotate(CheckTarget(worker), "--worker"));
  }
  for (const std::string& probes : c.worker_metrics) {
    QUIRE_RETURN_IF_ERROR(Annotate(CheckTarget(probes), "--worker-metrics"));
  }
  if (c.worker_metrics.size() > kMaxWorkerMetrics) {
    return InvalidArgument("--worker-metrics: at most " + std::to_string(kMaxWorkerMetrics) +
                           " workers are asked; let Prometheus ask them itself");
  }
  for (const std::string& name : c.worker_dns) {
    QUIRE_RETURN_IF_ERROR(Annotate(CheckTarget(name), "--worker-dns"));
  }
  if (c.kubernetes.selector.empty()) return absl::OkStatus();
  return Annotate(CheckServerUrl(c.kubernetes_api_server), "--k8s-api-server");
}

absl::Status CheckMetricsPort(const RouterConfig& c) {
  if (c.metrics_port >= 0 && !c.metrics) {
    return InvalidArgument("--metrics-port: --no-metrics closes /metrics; leave out one of both");
  }
  const int32_t port = c.metrics_port;
  if (port > 0 && (port == c.port || port == c.grpc_port || port == c.admin_port)) {
    return InvalidArgument("--metrics-port: is the same as another port; choose one of its own");
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status CheckRouterConfig(const RouterConfig& c) {
  QUIRE_RETURN_IF_ERROR(CheckDiscovery(c));
  QUIRE_RETURN_IF_ERROR(PoolRulesOf(c).status());
  QUIRE_RETURN_IF_ERROR(AnswerRules::Read(c.tool_call_parsers, c.reasoning_parsers).status());
  if (c.port != 0 && c.port == c.grpc_port) {
    return InvalidArgument("--grpc-port: is the same as --port; each of them speaks both, choose " +
                           std::to_string(c.port % 65535 + 1));
  }
  if (!IsLoopback(c.front.host) && !c.insecure && !HasKeys(c)) {
    return InvalidArgument("--host: " + c.front.host +
                           " is not a loopback address and no keys are configured; use 127.0.0.1, "
                           "give --api-key-file or add --insecure");
  }
  if (c.tls_cert_file.empty() != c.tls_key_file.empty()) {
    const std::string missing = c.tls_cert_file.empty() ? "--tls-cert-file" : "--tls-key-file";
    return InvalidArgument(missing + " is missing: a certificate and its key go together");
  }
  if ((c.admin_port >= 0) == c.admin_token_file.empty()) {
    const std::string missing = c.admin_port >= 0 ? "--admin-token-file" : "--admin-port";
    return InvalidArgument(missing +
                           " is missing: the admin port and the file with its token go together; "
                           "`openssl rand -hex 24 > FILE` makes one");
  }
  if (c.admin_port > 0 && (c.admin_port == c.port || c.admin_port == c.grpc_port)) {
    return InvalidArgument("--admin-port: is the same as another port; choose one of its own");
  }
  QUIRE_RETURN_IF_ERROR(CheckMetricsPort(c));
  QUIRE_RETURN_IF_ERROR(
      Annotate(TrustedProxies::Parse(c.trusted_proxies).status(), "--trusted-proxies"));
  if (c.http.max_total_body_bytes < c.http.max_body_bytes) {
    return InvalidArgument("--max-total-body-bytes: must be at least --max-body-bytes, which is " +
                           std::to_string(c.http.max_body_bytes) + ", is " +
                           std::to_string(c.http.max_total_body_bytes));
  }
  const int worker_tls = !c.worker_tls_ca_file.empty() + !c.worker_tls_cert_file.empty() +
                         !c.worker_tls_key_file.empty();
  if (worker_tls != 0 && worker_tls != 3) {
    return InvalidArgument(
        "--worker-tls-ca-file, --worker-tls-cert-file, --worker-tls-key-file: routers and workers "
        "show each other certificates, so all three are needed");
  }
  if (c.check_ports && !c.check) return InvalidArgument("--check-ports goes with --check");
  if (c.worker_tls_name.empty() || c.worker_tls_name.size() > 253) {
    return InvalidArgument("--worker-tls-name: must have 1 to 253 bytes, such as quire-worker");
  }
  if (!c.api_key_file.empty() && c.salt_key_file.empty()) {
    return InvalidArgument(
        "--salt-key-file is missing: with --api-key-file cached prompts are kept apart by a secret "
        "that all routers share; `openssl rand -hex 32 > FILE` makes one");
  }
  return absl::OkStatus();
}

bool HasKeys(const RouterConfig& c) { return !c.api_key_file.empty() || !c.api_keys.empty(); }

absl::StatusOr<PoolRules> PoolRulesOf(const RouterConfig& c) {
  return ReadPoolRules({c.model_aliases, c.pinned_models, c.model_weights});
}

}  // namespace quire
