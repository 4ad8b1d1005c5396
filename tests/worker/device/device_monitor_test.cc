// GPUs through NVML, with a library that stands in for it: values, faults, functions that are
// missing, a device that is lost, a driver that hangs.
#include "worker/device/device_monitor.h"

#include <gtest/gtest.h>
#include <stdlib.h>

#include <chrono>
#include <mutex>
#include <thread>

#include "kernels/cuda/driver/nvml.h"
#include "tests/worker/device/fakes/fake_nvml.h"

namespace quire {
namespace {

using kernels::cuda::DeviceReading;
using kernels::cuda::kNotTold;
using kernels::cuda::Nvml;

const std::string kFakes = QUIRE_BINARY_DIR "/tests/fake_cuda/";
constexpr const char* kWhole = "00000000-0000-0000-0000-000000000000";
constexpr const char* kSlice = "11111111-1111-1111-1111-111111111111";
constexpr int64_t kLongMicros = 20'000'000;

kernels::LibraryPlaces Named(const std::string& folder) {
  kernels::LibraryPlaces places;
  places.named = kFakes + folder;
  return places;
}

class NvmlTest : public testing::Test {
 protected:
  void SetUp() override { Say(""); }
  void TearDown() override { unsetenv("FAKE_NVML"); }
  // Before threads run that look at it.
  static void Say(const std::string& words) { setenv("FAKE_NVML", words.c_str(), 1); }

  static std::unique_ptr<Nvml> Open(const std::string& folder = "nvml") {
    std::string error;
    auto nvml = Nvml::Open(Named(folder), error);
    EXPECT_NE(nvml, nullptr) << error;
    return nvml;
  }
};

TEST_F(NvmlTest, TellsOfADeviceByItsUuid) {
  Say("used_mib=40960 uncorrected=2 corrected=7 reasons=68");
  const auto nvml = Open();
  std::string error;
  const auto devices = nvml->Devices(error);
  ASSERT_EQ(devices.size(), 1u) << error;
  EXPECT_EQ(devices[0].name, "Paper 9000");
  EXPECT_EQ(devices[0].uuid, std::string("GPU-") + kWhole);
  for (const std::string& uuid : {std::string(kWhole), devices[0].uuid}) {
    const DeviceReading reading = nvml->Read(uuid);
    EXPECT_EQ(reading.error, "");
    EXPECT_EQ(reading.memory_total_bytes, int64_t{80} << 30);
    EXPECT_EQ(reading.memory_used_bytes, int64_t{40} << 30);
    EXPECT_EQ(reading.power_milliwatts, 310500);
    EXPECT_EQ(reading.sm_clock_mhz, 1980);
    EXPECT_EQ(reading.memory_clock_mhz, 3201);
    EXPECT_EQ(reading.temperature_celsius, 41);
    EXPECT_EQ(reading.ecc_corrected, 7);
    EXPECT_EQ(reading.ecc_uncorrected, 2);
    EXPECT_EQ(reading.xid, 0);
    using kernels::cuda::ThrottleReason;
    EXPECT_TRUE(IsThrottled(reading, ThrottleReason::kPower));
    EXPECT_TRUE(IsThrottled(reading, ThrottleReason::kThermal));
    EXPECT_FALSE(IsThrottled(reading, ThrottleReason::kHardware));
    EXPECT_EQ(ReadingText(reading),
              "2 uncorrected ECC errors, throttled by thermal, 41 C, 310 W, throttled by power, "
              "40.0 of 80.0 GiB in use");
    EXPECT_EQ(FaultText(reading), "2 uncorrected ECC errors, throttled by thermal");
  }
}

TEST_F(NvmlTest, AFaultIsKeptUntilTheNextOne) {
  const auto nvml = Open();
  EXPECT_EQ(nvml->Read(kWhole).xid, 0);
  EXPECT_EQ(FaultText(nvml->Read(kWhole)), "");
  Say("xid=79");
  EXPECT_EQ(nvml->Read(kWhole).xid, 79);
  EXPECT_EQ(nvml->Read(kWhole).xid, 79);
  EXPECT_EQ(FaultText(nvml->Read(kWhole)), "XID 79");
}

TEST_F(NvmlTest, ASliceHasMemoryOfItsOwnAndTheRestOfItsDevice) {
  const auto nvml = Open();
  const DeviceReading reading = nvml->Read(kSlice);
  EXPECT_EQ(reading.error, "");
  EXPECT_EQ(reading.memory_total_bytes, int64_t{10} << 30);
  EXPECT_EQ(reading.power_milliwatts, 310500);
  EXPECT_EQ(reading.xid, 0);
}

TEST_F(NvmlTest, WhatIsMissingIsNotTold) {
  const auto nvml = Open("nvml_little");
  const DeviceReading reading = nvml->Read(kWhole);
  EXPECT_EQ(reading.memory_total_bytes, int64_t{80} << 30);
  for (const int64_t value :
       {reading.power_milliwatts, reading.sm_clock_mhz, reading.memory_clock_mhz,
        reading.temperature_celsius, reading.throttle_reasons, reading.ecc_corrected,
        reading.ecc_uncorrected, reading.xid}) {
    EXPECT_EQ(value, kNotTold);
  }
  EXPECT_EQ(ReadingText(reading), "1.0 of 80.0 GiB in use");
  EXPECT_EQ(nvml->Read("22222222-2222-2222-2222-222222222222").error,
            "nvmlDeviceGetHandleByUUID says Not Found (6)");
}

TEST_F(NvmlTest, ADeviceThatIsLostSaysSo) {
  const auto nvml = Open();
  nvml->Read(kWhole);
  Say("lost=1 xid=79");
  const DeviceReading reading = nvml->Read(kWhole);
  EXPECT_EQ(FaultText(reading), "XID 79, nvmlDeviceGetMemoryInfo says GPU is lost (15)");
  EXPECT_EQ(reading.memory_total_bytes, kNotTold);
}

TEST_F(NvmlTest, ALibraryThatWillNotDoIsALine) {
  std::string error;
  EXPECT_EQ(Nvml::Open(Named("nowhere"), error), nullptr);
  EXPECT_NE(error.find("libnvidia-ml.so.1 cannot be used"), std::string::npos) << error;
  EXPECT_EQ(Nvml::Open(Named("driver/libcuda.so.1"), error), nullptr);
  EXPECT_NE(error.find("it has no nvmlInit_v2"), std::string::npos) << error;
  Say("init=9");
  EXPECT_EQ(Nvml::Open(Named("nvml"), error), nullptr);
  EXPECT_NE(error.find("nvmlInit says Unknown Error (9)"), std::string::npos) << error;
}

// Keeps what was said, line by line.
class KeepingLogger final : public Logger {
 public:
  KeepingLogger() : Logger(LogLevel::kInfo) {}
  std::string text() {
    const std::lock_guard<std::mutex> lock(mutex_);
    return text_;
  }

 private:
  void Write(LogLevel, std::string_view message, std::span<const LogField> fields) override {
    const std::lock_guard<std::mutex> lock(mutex_);
    text_ += std::string(message);
    for (const LogField& field : fields) text_ += " " + field.value.text;
  }
  std::mutex mutex_;
  std::string text_;
};

class MonitorTest : public NvmlTest {
 protected:
  // Its thread looks at the words.
  void TearDown() override {
    monitor_.reset();
    NvmlTest::TearDown();
  }
  DeviceMonitor& Start(const std::string& folder = "nvml", int64_t end_micros = kLongMicros) {
    DeviceMonitorOptions options;
    options.places = Named(folder);
    options.uuids = {kWhole, kSlice};
    options.interval_micros = 1000;
    options.end_micros = end_micros;
    monitor_ = std::make_unique<DeviceMonitor>(options, metrics_, log_);
    return *monitor_;
  }
  bool Shows(const std::string& line) {
    return metrics_.Render().find(line + "\n") != std::string::npos;
  }

  Metrics metrics_;
  KeepingLogger log_;
  std::unique_ptr<DeviceMonitor> monitor_;
};

TEST_F(MonitorTest, TellsMetricsOfEachRankAndWhatWasWrong) {
  Say("xid=31 reasons=8");
  DeviceMonitor& monitor = Start();
  EXPECT_EQ(monitor.Note(kLongMicros),
            "rank 0: XID 31, throttled by hardware, 41 C, 310 W, 1.0 of 80.0 GiB in use; "
            "rank 1: XID 31, throttled by hardware, 41 C, 310 W, 1.0 of 10.0 GiB in use");
  EXPECT_EQ(monitor.Faults(kLongMicros),
            "rank 0: XID 31, throttled by hardware; rank 1: XID 31, throttled by hardware");
  const std::string of = std::string("device=\"") + kWhole + "\"";
  const std::string slice = std::string("device=\"") + kSlice + "\"";
  const std::string prefix = "quire_worker_device_";
  EXPECT_TRUE(Shows(prefix + "used_bytes{rank=\"0\"," + of + "} 1073741824")) << metrics_.Render();
  EXPECT_TRUE(Shows(prefix + "size_bytes{rank=\"1\"," + slice + "} 10737418240"));
  EXPECT_TRUE(Shows(prefix + "power_watts{rank=\"0\"," + of + "} 310.5"));
  EXPECT_TRUE(Shows(prefix + "clock_hertz{rank=\"0\"," + of + ",clock=\"sm\"} 1980000000"));
  EXPECT_TRUE(Shows(prefix + "clock_hertz{rank=\"0\"," + of + ",clock=\"memory\"} 3201000000"));
  EXPECT_TRUE(Shows(prefix + "temperature_celsius{rank=\"0\"," + of + "} 41"));
  EXPECT_TRUE(Shows(prefix + "throttled{rank=\"0\"," + of + ",why=\"hardware\"} 1"));
  EXPECT_TRUE(Shows(prefix + "throttled{rank=\"0\"," + of + ",why=\"power\"} 0"));
  EXPECT_TRUE(Shows(prefix + "ecc_errors{rank=\"0\"," + of + ",kind=\"uncorrected\"} 0"));
  EXPECT_TRUE(Shows(prefix + "xid{rank=\"0\"," + of + "} 31"));
  EXPECT_NE(metrics_.Render().find(prefix + "reading_age_seconds "), std::string::npos);
}

TEST_F(MonitorTest, WhatIsNotToldHasNoMetric) {
  DeviceMonitor& monitor = Start("nvml_little");
  EXPECT_NE(monitor.Note(kLongMicros), "");
  const std::string shown = metrics_.Render();
  EXPECT_NE(shown.find("quire_worker_device_used_bytes"), std::string::npos);
  for (const char* name : {"power_watts", "clock_hertz", "throttled", "ecc_errors", "xid"}) {
    EXPECT_EQ(shown.find(std::string("quire_worker_device_") + name), std::string::npos) << name;
  }
}

TEST_F(MonitorTest, WithoutTheLibraryThereIsALineAndNoMetric) {
  DeviceMonitor& monitor = Start("nowhere");
  EXPECT_EQ(monitor.Note(kLongMicros), "");
  EXPECT_NE(log_.text().find("GPUs are not looked at libnvidia-ml.so.1 cannot be used"),
            std::string::npos)
      << log_.text();
  EXPECT_EQ(metrics_.Render().find("quire_worker_device"), std::string::npos);
}

// A look that began before somebody asks may have missed what he asks about.
TEST_F(MonitorTest, ALookUnderWayIsNotTheOneThatIsWaitedFor) {
  const test::FakeNvml fake;
  const int before = fake.Count("reads");
  Say("slow_ms=100 used_is_reads=1");
  DeviceMonitorOptions options;
  options.places = Named("nvml");
  options.uuids = {kWhole};
  options.interval_micros = kLongMicros;
  options.end_micros = kLongMicros;
  monitor_ = std::make_unique<DeviceMonitor>(options, metrics_, log_);
  fake.AwaitMore("reads", before);
  EXPECT_EQ(monitor_->Note(kLongMicros),
            "rank 0: 41 C, 310 W, " + std::to_string(before + 2) + ".0 of 80.0 GiB in use");
}

// The thread that hangs is left behind: nobody waits for it beyond what was said. Its words are
// changed when it has read them.
class HangingMonitorTest : public MonitorTest {
 protected:
  void ExpectNoWait(const std::string& words) {
    const test::FakeNvml fake;
    const int before = fake.Count("hangs");
    Say(words);
    DeviceMonitor& monitor = Start("nvml", 1000);
    fake.AwaitMore("hangs", before);
    EXPECT_EQ(monitor.Note(1000), "");
    monitor_.reset();
    EXPECT_EQ(metrics_.Render().find("quire_worker_device_used_bytes"), std::string::npos);
  }
};

TEST_F(HangingMonitorTest, ALookIsNotWaitedFor) { ExpectNoWait("hang=1"); }
TEST_F(HangingMonitorTest, TheLibrarysStartIsNotWaitedFor) { ExpectNoWait("hang_init=1"); }

}  // namespace
}  // namespace quire
