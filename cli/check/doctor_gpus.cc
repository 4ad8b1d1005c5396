// The GPU checks of `quire doctor`, through NVML. A driver that hangs blocks only a thread that is
// abandoned, not the program.
#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>

#include "cli/check/doctor_checks.h"
#include "kernels/cuda/driver/nvml.h"

namespace quire::cli {
namespace {

using kernels::cuda::DeviceReading;
using kernels::cuda::Nvml;
using kernels::cuda::NvmlDevice;

struct GpuAnswer {
  std::string error;
  std::vector<std::pair<NvmlDevice, DeviceReading>> devices;
};

// Shared with the thread that reads.
struct Question {
  std::mutex mutex;
  std::condition_variable answered;
  bool done = false;
  GpuAnswer answer;
};

GpuAnswer Ask(const kernels::LibraryPlaces& places) {
  GpuAnswer answer;
  const std::unique_ptr<Nvml> nvml = Nvml::Open(places, answer.error);
  if (nvml == nullptr) return answer;
  for (const NvmlDevice& device : nvml->Devices(answer.error)) {
    answer.devices.emplace_back(device, nvml->Read(device.uuid));
  }
  return answer;
}

std::vector<Finding> Judge(const GpuAnswer& answer, int gpus) {
  std::vector<Finding> findings;
  for (const auto& [device, reading] : answer.devices) {
    Finding finding{"gpu", Verdict::kGood, device.name + " (" + device.uuid + ")", ""};
    const std::string text = ReadingText(reading);
    if (!text.empty()) finding.what += ": " + text;
    if (!FaultText(reading).empty()) {
      finding.verdict = Verdict::kWarning;
      finding.remedy = "serve elsewhere until this is mended: --device names the others";
    }
    findings.push_back(std::move(finding));
  }
  if (gpus > 0 && findings.empty()) {
    findings.push_back({"gpu", Verdict::kWarning,
                        answer.error.empty() ? "NVML shows none" : answer.error,
                        "install the driver with its utilities (libnvidia-ml.so.1), and give "
                        "containers the driver capability 'utility'"});
  }
  return findings;
}

}  // namespace

std::vector<Finding> CheckGpus(const kernels::LibraryPlaces& places, int gpus,
                               int64_t limit_millis) {
  auto question = std::make_shared<Question>();
  std::thread([question, places] {
    GpuAnswer answer = Ask(places);
    const std::lock_guard<std::mutex> lock(question->mutex);
    question->answer = std::move(answer);
    question->done = true;
    question->answered.notify_all();
  }).detach();
  std::unique_lock<std::mutex> lock(question->mutex);
  question->answered.wait_for(lock, std::chrono::milliseconds(limit_millis),
                              [&question] { return question->done; });
  if (question->done) return Judge(question->answer, gpus);
  return {{"gpu", Verdict::kBad,
           "the driver does not answer within " + std::to_string(limit_millis) + " ms",
           "nvidia-smi will not answer either: reset the GPU, or the machine"}};
}

}  // namespace quire::cli
