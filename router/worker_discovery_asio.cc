#include <map>
#include <string>
#include <utility>
#include <vector>

#include "router/discovery/dns_source.h"
#include "router/discovery/fetch_asio.h"
#include "router/discovery/list_file.h"
#include "router/worker_discovery.h"

namespace quire {
namespace {

constexpr size_t kMaxNamespaceBytes = 4096;

// The namespace of the pod that this router runs in.
absl::StatusOr<std::string> OwnNamespace(Files& files, const std::string& path) {
  absl::StatusOr<std::string> text = ReadOneLine(files, path, kMaxNamespaceBytes);
  if (text.ok()) return text;
  return Annotate(text.status(), "--worker-k8s-namespace is missing, and there is no pod's own");
}

}  // namespace

struct WorkerDiscovery::State {
  State(AsioExecutor& executor, const DiscoveryRuntime& discovery_runtime)
      : runtime(discovery_runtime), resolver(MakeThreadResolver(executor, LookUpBySystem)) {}

  const DiscoveryRuntime& runtime;
  std::unique_ptr<Resolver> resolver;
  std::unique_ptr<Fetcher> fetcher;
  std::map<std::string, std::unique_ptr<SourceMetrics>> metrics;
  std::vector<std::unique_ptr<WorkerSource>> sources;
};

WorkerDiscovery::WorkerDiscovery(std::unique_ptr<State> state) : state_(std::move(state)) {}
WorkerDiscovery::~WorkerDiscovery() = default;

absl::StatusOr<std::unique_ptr<WorkerDiscovery>> WorkerDiscovery::Make(
    const RouterConfig& config, AsioExecutor& executor, const DiscoveryRuntime& runtime,
    Metrics& metrics) {
  auto state = std::make_unique<State>(executor, runtime);
  const auto metrics_of = [&](const std::string& flag) -> SourceMetrics& {
    auto& of_flag = state->metrics[flag];
    if (of_flag == nullptr) of_flag = std::make_unique<SourceMetrics>(metrics, flag);
    return *of_flag;
  };
  for (const std::string& path : config.worker_files) {
    auto source = ListFileSource::Make(path, runtime, metrics_of("worker-file"));
    if (!source.ok()) return Annotate(source.status(), "--worker-file");
    state->sources.push_back(*std::move(source));
  }
  for (const std::string& name : config.worker_dns) {
    state->sources.push_back(
        std::make_unique<DnsSource>(name, *state->resolver, runtime, metrics_of("worker-dns")));
  }
  if (!config.kubernetes.selector.empty()) {
    KubernetesOptions options = config.kubernetes;
    if (options.name_space.empty()) {
      QUIRE_ASSIGN_OR_RETURN(
          options.name_space,
          OwnNamespace(runtime.files, config.kubernetes_service_account + "/namespace"));
    }
    const FetcherOptions fetcher{config.kubernetes_api_server,
                                 config.kubernetes_service_account + "/token",
                                 config.kubernetes_service_account + "/ca.crt"};
    state->fetcher = MakeAsioFetcher(fetcher, executor.context(), *state->resolver, runtime.files);
    state->sources.push_back(std::make_unique<KubernetesSource>(options, *state->fetcher, runtime,
                                                                metrics_of("worker-k8s")));
  }
  return std::unique_ptr<WorkerDiscovery>(new WorkerDiscovery(std::move(state)));
}

void WorkerDiscovery::Start() {
  for (const auto& source : state_->sources) source->Start();
}

}  // namespace quire
