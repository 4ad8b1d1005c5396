#include "worker/process_gauges.h"

#include "common/pem.h"
#include "common/runtime/asio_executor.h"

namespace quire {

void AddStepAges(Metrics& metrics, const StepProgress& progress, const Clock& clock) {
  Gauge& running = metrics.AddGauge(
      {"quire_worker_step_age_seconds", "Age of the step that runs; 0: none does."});
  Gauge& limit = metrics.AddGauge(
      {"quire_worker_step_limit_seconds", "The age at which the step that runs counts as stuck."});
  Gauge& since = metrics.AddGauge(
      {"quire_worker_last_step_age_seconds", "Since the last step ended, the idle probe's too."});
  metrics.BeforeRender([&running, &limit, &since, &progress, &clock] {
    const Micros now = clock.Now();
    const auto age = [now](Micros then) {
      return then == 0 ? 0 : static_cast<double>(now - then) / kMicrosPerSecond;
    };
    running.Set(age(progress.running_since_us.load()));
    limit.Set(static_cast<double>(progress.running_limit_us.load()) / kMicrosPerSecond);
    since.Set(age(progress.last_step_end_us.load()));
  });
}

void AddCertificateEnd(Metrics& metrics, const std::string& path) {
  Gauge& end =
      metrics.AddGauge({"quire_worker_certificate_not_after_seconds",
                        "When the certificate ends that is shown, since 1970; 0: none is."});
  if (path.empty()) return;
  metrics.BeforeRender([&end, path] {
    RealFiles files;
    const absl::StatusOr<std::string> pem = files.Read(path, kMaxPemBytes);
    end.Set(pem.ok() ? static_cast<double>(CertificateEnd(*pem)) : 0);
  });
}

}  // namespace quire
