#include "worker/device/device_monitor.h"

#include <pthread.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <thread>
#include <utility>

#include "common/sync.h"
#include "kernels/collectives/futex.h"
#include "kernels/cuda/driver/nvml.h"

namespace quire {
namespace {

using kernels::cuda::DeviceReading;
using kernels::cuda::kNotTold;
using kernels::cuda::Nvml;

using Labels = std::vector<std::pair<std::string, std::string>>;

// The gauges of one rank, each created when its value is first known.
class RankGauges {
 public:
  explicit RankGauges(Labels labels) : labels_(std::move(labels)) {}

  void Set(const DeviceReading& reading, Metrics& metrics) {
    size_t next = 0;
    const auto tell = [&](MetricName name, int64_t value, double unit) {
      if (gauges_.size() == next) gauges_.push_back(nullptr);
      Gauge*& gauge = gauges_[next++];
      if (value == kNotTold) return;
      name.labels.insert(name.labels.begin(), labels_.begin(), labels_.end());
      if (gauge == nullptr) gauge = &metrics.AddGauge(std::move(name));
      gauge->Set(static_cast<double>(value) * unit);
    };
    constexpr double kMega = 1e6;
    tell({"quire_worker_device_used_bytes",
          "Memory of a rank's GPU that is in use, by all processes and the driver."},
         reading.memory_used_bytes, 1);
    tell({"quire_worker_device_size_bytes", "Memory of a rank's GPU."}, reading.memory_total_bytes,
         1);
    tell({"quire_worker_device_power_watts", "Power that a rank's GPU draws."},
         reading.power_milliwatts, 1e-3);
    tell({"quire_worker_device_clock_hertz", "Clocks of a rank's GPU.", {{"clock", "sm"}}},
         reading.sm_clock_mhz, kMega);
    tell({"quire_worker_device_clock_hertz", "Clocks of a rank's GPU.", {{"clock", "memory"}}},
         reading.memory_clock_mhz, kMega);
    tell({"quire_worker_device_temperature_celsius", "Temperature of a rank's GPU."},
         reading.temperature_celsius, 1);
    TellFaults(reading, tell);
  }

 private:
  template <class Tell>
  static void TellFaults(const DeviceReading& reading, const Tell& tell) {
    for (int i = 0; i < kernels::cuda::kThrottleReasons; ++i) {
      const auto reason = static_cast<kernels::cuda::ThrottleReason>(i);
      const bool told = reading.throttle_reasons != kNotTold;
      tell({"quire_worker_device_throttled",
            "1 while clocks of a rank's GPU are held down, by reason.",
            {{"why", kernels::cuda::ThrottleReasonName(reason)}}},
           told ? (IsThrottled(reading, reason) ? 1 : 0) : kNotTold, 1);
    }
    const char* const ecc = "quire_worker_device_ecc_errors";
    const char* const ecc_help = "Errors of a rank's GPU memory since its driver was loaded.";
    tell({ecc, ecc_help, {{"kind", "corrected"}}}, reading.ecc_corrected, 1);
    tell({ecc, ecc_help, {{"kind", "uncorrected"}}}, reading.ecc_uncorrected, 1);
    tell({"quire_worker_device_xid",
          "Number of the newest fault (XID) of a rank's GPU since the worker began; 0: none."},
         reading.xid, 1);
  }

  const Labels labels_;
  std::vector<Gauge*> gauges_;
};

}  // namespace

struct DeviceMonitor::State {
  DeviceMonitorOptions options;
  Mutex mutex;
  std::condition_variable wake;    // of the thread
  std::condition_variable looked;  // of the waiting caller
  // Guarded by mutex; the thread uses metrics and log under it, and not after it has been stopped.
  bool stopping = false;
  bool ended = false;
  bool look_now = false;
  bool reading = false;                 // a reading has begun and has not ended
  uint64_t looks = 0;                   // readings that have ended
  std::vector<DeviceReading> readings;  // by rank; empty before the first reading
  Metrics* metrics = nullptr;
  Logger* log = nullptr;
  std::vector<RankGauges> gauges;
  // Read while metrics are rendered, under no lock of ours.
  std::atomic<int64_t> looked_us{0};

  void Run(const std::shared_ptr<State>& self);
  bool Begin(const std::shared_ptr<State>& self, const Nvml* nvml, const std::string& error);
  std::string Text(int64_t wait_micros, std::string (*of)(const DeviceReading&));
};

// False: there is nothing to read.
bool DeviceMonitor::State::Begin(const std::shared_ptr<State>& self, const Nvml* nvml,
                                 const std::string& error) {
  MutexLock lock(mutex);
  if (stopping) return false;
  if (nvml == nullptr) {
    log->Info("GPUs are not looked at", {{"why", error}});
    return false;
  }
  Gauge& age = metrics->AddGauge(
      {"quire_worker_device_reading_age_seconds",
       "Time since the ranks' GPUs were last looked at; it grows where their driver hangs."});
  looked_us.store(kernels::FutexNowMicros());
  metrics->BeforeRender([self, &age] {
    age.Set(static_cast<double>(kernels::FutexNowMicros() - self->looked_us.load()) * 1e-6);
  });
  return true;
}

void DeviceMonitor::State::Run(const std::shared_ptr<State>& self) {
  pthread_setname_np(pthread_self(), "nvml");
  std::string error;
  const std::unique_ptr<Nvml> nvml = Nvml::Open(options.places, error);
  if (!Begin(self, nvml.get(), error)) return;
  while (true) {
    {
      MutexLock begins(mutex);
      if (stopping) return;
      look_now = false;
      reading = true;
    }
    std::vector<DeviceReading> fresh;
    for (const std::string& uuid : options.uuids) fresh.push_back(nvml->Read(uuid));
    std::unique_lock<std::mutex> lock(mutex.native());
    if (stopping) return;
    reading = false;
    for (size_t rank = 0; rank < fresh.size(); ++rank) gauges[rank].Set(fresh[rank], *metrics);
    readings = std::move(fresh);
    looked_us.store(kernels::FutexNowMicros());
    ++looks;
    looked.notify_all();
    wake.wait_for(lock, std::chrono::microseconds(options.interval_micros),
                  [this] { return stopping || look_now; });
  }
}

std::string DeviceMonitor::State::Text(int64_t wait_micros,
                                       std::string (*of)(const DeviceReading&)) {
  std::unique_lock<std::mutex> lock(mutex.native());
  if (!ended) {
    // A reading under way began before the time of the question.
    const uint64_t enough = looks + (reading ? 2 : 1);
    look_now = true;
    wake.notify_one();
    looked.wait_for(lock, std::chrono::microseconds(wait_micros),
                    [this, enough] { return ended || looks >= enough; });
  }
  std::string text;
  for (size_t rank = 0; rank < readings.size(); ++rank) {
    const std::string one = of(readings[rank]);
    if (one.empty()) continue;
    text += (text.empty() ? "rank " : "; rank ") + std::to_string(rank) + ": " + one;
  }
  return text;
}

DeviceMonitor::DeviceMonitor(DeviceMonitorOptions options, Metrics& metrics, Logger& log)
    : state_(std::make_shared<State>()) {
  state_->metrics = &metrics;
  state_->log = &log;
  for (size_t rank = 0; rank < options.uuids.size(); ++rank) {
    state_->gauges.emplace_back(
        Labels{{"rank", std::to_string(rank)}, {"device", options.uuids[rank]}});
  }
  state_->options = std::move(options);
  std::thread([state = state_] {
    state->Run(state);
    MutexLock lock(state->mutex);
    state->ended = true;
    state->looked.notify_all();
  }).detach();
}

DeviceMonitor::~DeviceMonitor() {
  std::unique_lock<std::mutex> lock(state_->mutex.native());
  state_->stopping = true;
  state_->wake.notify_one();
  state_->looked.wait_for(lock, std::chrono::microseconds(state_->options.end_micros),
                          [this] { return state_->ended; });
}

std::string DeviceMonitor::Note(int64_t wait_micros) {
  return state_->Text(wait_micros, &kernels::cuda::ReadingText);
}

std::string DeviceMonitor::Faults(int64_t wait_micros) {
  return state_->Text(wait_micros, &kernels::cuda::FaultText);
}

kernels::LibraryPlaces NvmlPlaces() { return {}; }

}  // namespace quire
