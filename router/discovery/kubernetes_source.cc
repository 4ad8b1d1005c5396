#include "router/discovery/kubernetes_source.h"

#include <algorithm>
#include <utility>

#include "common/check.h"

namespace quire {
namespace {

constexpr int kOk = 200;
constexpr int kGone = 410;
constexpr size_t kMaxToldBytes = 200;

std::string Escaped(std::string_view text) {
  constexpr std::string_view kDigits = "0123456789ABCDEF";
  std::string out;
  for (const char c : text) {
    const bool plain = (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
                       c == '-' || c == '.' || c == '_' || c == '~';
    if (plain) {
      out += c;
    } else {
      out += '%';
      out += kDigits[static_cast<unsigned char>(c) >> 4];
      out += kDigits[static_cast<unsigned char>(c) & 15];
    }
  }
  return out;
}

std::string BaseOf(const KubernetesOptions& options) {
  const bool labels = options.selector.find_first_of("=!(, ") != std::string::npos;
  const std::string selector =
      labels ? options.selector : "kubernetes.io/service-name=" + options.selector;
  return "/apis/discovery.k8s.io/v1/namespaces/" + Escaped(options.name_space) +
         "/endpointslices?labelSelector=" + Escaped(selector);
}

// The meaning of an answer that is not 200 for the operator of the router.
absl::Status StatusError(int status, std::string_view body) {
  std::string text = "the API server says " + std::to_string(status);
  if (status == 401) text += ": the token of the service account is refused";
  if (status == 403) text += ": the service account needs list and watch on endpointslices";
  if (status == 404) text += ": no such API there";
  const std::string told(body.substr(0, kMaxToldBytes));
  return absl::UnavailableError(
      AbslView(status == 401 || status == 403 ? text : text + " " + told));
}

}  // namespace

KubernetesSource::KubernetesSource(const KubernetesOptions& options, Fetcher& fetcher,
                                   const DiscoveryRuntime& runtime, SourceMetrics& metrics)
    : runtime_(runtime),
      fetcher_(fetcher),
      report_("worker-k8s", options.selector, runtime, metrics),
      base_(BaseOf(options)),
      slices_(options.port) {}

void KubernetesSource::Start() { Ask(); }

void KubernetesSource::AskIn(Micros delay) {
  QUIRE_CHECK(!timer_.running() && fetch_ == nullptr);
  timer_.SetIn(delay, [this] { Ask(); });
}

void KubernetesSource::Ask() {
  QUIRE_CHECK_MSG(fetch_ == nullptr, "one question at a time");
  status_ = 0;
  retry_after_s_ = 0;
  body_.clear();
  began_at_ = runtime_.executor.clock().Now();
  std::string path = base_;
  if (watching_) {
    path += "&watch=1&allowWatchBookmarks=true&timeoutSeconds=" + std::to_string(kWatchSeconds) +
            "&resourceVersion=" + Escaped(slices_.resource_version());
  } else {
    path += "&limit=" + std::to_string(kPageItems);
    if (!first_page_) path += "&continue=" + Escaped(slices_.next_page());
  }
  fetch_ = fetcher_.Get(path, watching_ ? kWatchTimeout : kListTimeout, *this);
}

void KubernetesSource::ListAnew() {
  watching_ = false;
  first_page_ = true;
}

void KubernetesSource::Failed(const absl::Status& why) {
  fetch_.reset();
  report_.Failed(why);
  const auto jitter = static_cast<Micros>(runtime_.rng.Next() % static_cast<uint64_t>(retry_));
  const Micros asked = static_cast<Micros>(retry_after_s_) * kMicrosPerSecond;
  const Micros delay = std::max(std::min(asked, kLastRetry), retry_ / 2 + jitter / 2);
  retry_ = std::min(retry_ * 2, kLastRetry);
  AskIn(delay);
}

// ------------------------------------------------------------------------------- the answer

void KubernetesSource::OnHead(int status, uint32_t retry_after_s) {
  status_ = status;
  retry_after_s_ = retry_after_s;
  // The list is valid again: the previous fault is over.
  if (watching_ && status == kOk) report_.Found(slices_.Targets());
}

void KubernetesSource::OnBody(std::string_view bytes) {
  if (!watching_ || status_ != kOk) {
    if (body_.size() + bytes.size() <= kMaxPageBytes) {
      body_ += bytes;
      return;
    }
    ListAnew();
    return Failed(absl::ResourceExhaustedError(AbslView("the API server's answer has more than " +
                                                        std::to_string(kMaxPageBytes) + " bytes")));
  }
  while (true) {
    const size_t end = bytes.find('\n');
    if (body_.size() + std::min(end, bytes.size()) > kMaxEventBytes) {
      ListAnew();
      return Failed(absl::ResourceExhaustedError(
          AbslView("a watch event has more than " + std::to_string(kMaxEventBytes) + " bytes")));
    }
    body_ += bytes.substr(0, end);
    if (end == std::string_view::npos) return;
    bytes.remove_prefix(end + 1);
    const std::string line = std::exchange(body_, {});
    if (!line.empty() && !TakeLine(line)) return;
  }
}

bool KubernetesSource::TakeLine(std::string_view line) {
  const absl::StatusOr<EndpointSlices::News> news = slices_.Apply(line);
  if (!news.ok()) {
    // A line that was not understood may have been a change: only a new list shows.
    ListAnew();
    Failed(Annotate(news.status(), "watch"));
    return false;
  }
  if (*news == EndpointSlices::News::kExpired) {
    ListAnew();
    Failed(absl::UnavailableError("the API server has forgotten the version that was watched"));
    return false;
  }
  retry_ = kFirstRetry;
  if (*news == EndpointSlices::News::kChanged) report_.Found(slices_.Targets());
  return true;
}

void KubernetesSource::OnEnd(const absl::Status& status) {
  const absl::Status ended = status.ok() && status_ != kOk ? StatusError(status_, body_) : status;
  if (status_ == kGone) ListAnew();
  if (watching_) {
    WatchEnded(ended);
  } else {
    PageEnded(ended);
  }
}

void KubernetesSource::PageEnded(const absl::Status& status) {
  if (!status.ok()) {
    ListAnew();
    return Failed(status);
  }
  if (absl::Status page = slices_.AddPage(body_, first_page_); !page.ok()) {
    ListAnew();
    return Failed(Annotate(page, "list"));
  }
  fetch_.reset();
  first_page_ = false;
  if (slices_.next_page().empty()) {
    watching_ = true;
    report_.Found(slices_.Targets());
  }
  AskIn(0);
}

void KubernetesSource::WatchEnded(const absl::Status& status) {
  const Micros lasted = runtime_.executor.clock().Now() - began_at_;
  if (!status.ok()) return Failed(status);
  if (lasted < kMicrosPerSecond) return Failed(absl::UnavailableError("the watch ended at once"));
  fetch_.reset();
  retry_ = kFirstRetry;
  AskIn(0);
}

}  // namespace quire
