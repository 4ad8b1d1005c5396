// Workers from Kubernetes: the EndpointSlices of a service, listed once and then watched.
//
// Owner: main, on the router's executor.
//  1. The last list stays in use until a later one is complete: an API server that is away, slow or
//     wrong removes no worker.
//  2. A watch continues from the version that it has reached; one that the server has forgotten
//     (410) leads to a new list.
//  3. Attempts that fail come kFirstRetry to kLastRetry apart, with jitter, and no sooner than the
//     server requests. A watch that ends at once counts as failed.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "common/runtime/timer.h"
#include "router/discovery/endpoint_slices.h"
#include "router/discovery/fetch.h"
#include "router/discovery/source.h"

namespace quire {

struct KubernetesOptions {
  std::string selector;  // labels of the slices, or the name of a service
  std::string name_space;
  std::string port;  // see EndpointSlices
};

class KubernetesSource final : public WorkerSource, private FetchReceiver {
 public:
  static constexpr Micros kListTimeout = 30 * kMicrosPerSecond;
  static constexpr int kWatchSeconds = 240;  // the server ends a watch after this time
  static constexpr Micros kWatchTimeout = (kWatchSeconds + 30) * kMicrosPerSecond;
  static constexpr Micros kFirstRetry = 500 * kMicrosPerMilli;
  static constexpr Micros kLastRetry = 30 * kMicrosPerSecond;
  static constexpr size_t kMaxPageBytes = 32u << 20;
  static constexpr size_t kMaxEventBytes = 2u << 20;
  static constexpr int kPageItems = 250;

  // `fetcher` outlives the source.
  KubernetesSource(const KubernetesOptions& options, Fetcher& fetcher,
                   const DiscoveryRuntime& runtime, SourceMetrics& metrics);
  void Start() override;

 private:
  void OnHead(int status, uint32_t retry_after_s) override;
  void OnBody(std::string_view bytes) override;
  void OnEnd(const absl::Status& status) override;

  void Ask();  // the next page, or a watch
  void ListAnew();
  void PageEnded(const absl::Status& status);
  void WatchEnded(const absl::Status& status);
  // False: the fetch is over.
  bool TakeLine(std::string_view line);
  void Failed(const absl::Status& why);
  void AskIn(Micros delay);

  const DiscoveryRuntime& runtime_;
  Fetcher& fetcher_;
  SourceReport report_;
  const std::string base_;  // path and selector
  EndpointSlices slices_;
  bool watching_ = false;  // else listing
  bool first_page_ = true;
  std::unique_ptr<Fetch> fetch_;
  int status_ = 0;
  uint32_t retry_after_s_ = 0;
  std::string body_;  // a page, or the rest of a line
  Micros began_at_ = 0;
  Micros retry_ = kFirstRetry;
  Timer timer_{runtime_.executor};
};

}  // namespace quire
