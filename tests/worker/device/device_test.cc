// What a worker says about GPUs that are missing, busy, too small, too old, or not its own: with
// libraries that stand in for the driver, the plugin and NCCL.
#include <gtest/gtest.h>
#include <sched.h>
#include <stdlib.h>
#include <sys/wait.h>

#include <cerrno>
#include <chrono>
#include <cstdio>

#include "worker/device/ask_apart.h"
#include "worker/device/cuda_plugin.h"
#include "worker/device/device_choice.h"
#include "worker/device/gpu_backend.h"

namespace quire {
namespace {

const std::string kFakes = QUIRE_BINARY_DIR "/tests/fake_cuda";
const std::string kNccl = QUIRE_BINARY_DIR "/tests/fake_nccl/good/libnccl.so.2";
const std::string kDriver = kFakes + "/driver/libcuda.so.1";

class Driver : public testing::Test {
 protected:
  void SetUp() override { Show(""); }
  void TearDown() override { unsetenv("FAKE_CUDA"); }
  void Show(const std::string& words) { setenv("FAKE_CUDA", words.c_str(), 1); }

  static DeviceSettings Settings(const std::string& device, int ranks = 1) {
    DeviceSettings settings;
    settings.device = device;
    settings.ranks = ranks;
    settings.driver_library = kDriver;
    settings.plugin = kFakes + "/good";
    return settings;
  }
  // One line that holds all of `parts`.
  static void ExpectSays(const absl::Status& status, absl::StatusCode code,
                         const std::vector<std::string>& parts) {
    const std::string text = StatusMessage(status);
    EXPECT_EQ(status.code(), code) << text;
    for (const std::string& part : parts) {
      EXPECT_NE(text.find(part), std::string::npos) << part << " is not in: " << text;
    }
    EXPECT_EQ(text.find('\n'), std::string::npos) << text;
  }
  static absl::Status Choose(const std::string& device, int ranks = 1) {
    return ChooseDevice(Settings(device, ranks)).status();
  }
};

constexpr auto kBadCount = absl::StatusCode::kInvalidArgument;
constexpr auto kUnusable = absl::StatusCode::kUnavailable;

TEST(DeviceRequest, IsReadInAllItsForms) {
  using Kind = DeviceRequest::Kind;
  EXPECT_EQ(ParseDevice("auto")->kind, Kind::kAuto);
  EXPECT_EQ(ParseDevice("cpu")->kind, Kind::kCpu);
  EXPECT_EQ(ParseDevice("cuda")->kind, Kind::kCuda);
  EXPECT_TRUE(ParseDevice("cuda")->names.empty());
  EXPECT_EQ(ParseDevice("cuda:3,01")->names, (std::vector<std::string>{"3", "1"}));
  const std::string uuid = "00010203-0405-0607-0809-0a0b0c0d0e0f";
  for (const char* prefix : {"cuda:", "cuda:GPU-", "cuda:MIG-"}) {
    EXPECT_EQ(ParseDevice(prefix + uuid)->names, std::vector<std::string>{uuid});
  }
  for (const char* wrong :
       {"", "gpu", "cuda:", "cuda:,", "cuda:0,", "cuda:x", "cuda:-1", "cuda:1234", "CUDA",
        "cuda:00010203-0405-0607-0809-0a0b0c0d0e0", "cuda:0001020-30405-0607-0809-0a0b0c0d0e0f"}) {
    EXPECT_TRUE(absl::IsInvalidArgument(ParseDevice(wrong).status())) << wrong;
  }
  EXPECT_NE(StatusMessage(ParseDevice("cuda:1,1").status()).find("named twice"), std::string::npos);
}

TEST_F(Driver, ShowsItsDevices) {
  Show("count=2 free_mib=1536");
  const DeviceRequest second = *ParseDevice("cuda:1");
  AskOptions ask;
  ask.library = kDriver;
  const auto report = AskDriverApart(second, ask);
  EXPECT_EQ(report.error, "");
  EXPECT_EQ(report.version, 13000);
  ASSERT_EQ(report.devices.size(), 2u);
  EXPECT_EQ(report.devices[1].uuid, "10111213-1415-1617-1819-1a1b1c1d1e1f");
  EXPECT_EQ(DeviceText(report.devices[0]), "0 (Paper 9000, 80.0 GiB)") << "not asked for";
  EXPECT_EQ(DeviceText(report.devices[1]), "1 (Paper 9000, 1.5 of 80.0 GiB free)");
}

TEST_F(Driver, IsMissingOldOrWithoutDevices) {
  DeviceSettings settings = Settings("cuda");
  settings.driver_library = "/nowhere/libcuda.so.1";
  ExpectSays(ChooseDevice(settings).status(), kUnusable,
             {"/nowhere/libcuda.so.1", "CUDA 13.0", "--device cpu"});
  settings.driver_library = kFakes + "/lacking/libcuda.so.1";
  ExpectSays(ChooseDevice(settings).status(), kUnusable, {"it has no cuMemGetInfo_v2"});
  Show("version=12040");
  ExpectSays(Choose("cuda"), kUnusable, {"serves CUDA up to 12.4", "needs 13.0", "newer driver"});
  Show("init=100");
  ExpectSays(Choose("cuda"), kUnusable, {"cuInit says CUDA_ERROR_NO_DEVICE (100)"});
  Show("count=0");
  ExpectSays(Choose("cuda"), kUnusable, {"shows no device", "CUDA_VISIBLE_DEVICES"});
}

TEST_F(Driver, IsNotNeededForAPlanOfNamedMemory) {
  DeviceSettings settings = Settings("cuda", 2);
  settings.driver_library = "/nowhere/libcuda.so.1";
  settings.for_a_plan = true;
  const auto choice = ChooseDevice(settings);
  ASSERT_TRUE(choice.ok()) << StatusMessage(choice.status());
  EXPECT_EQ(choice->device, "cuda:0,1");
  ASSERT_EQ(choice->gpus.size(), 2u);
  EXPECT_EQ(choice->gpus[1].major, 9);
  EXPECT_NE(choice->gpus[1].name.find("not here"), std::string::npos);
  settings.device = "auto";
  settings.ranks = 1;
  EXPECT_EQ(ChooseDevice(settings)->device, "cpu") << "what is here";
  settings.device = "cuda";
  settings.plugin = "/nowhere";
  ExpectSays(ChooseDevice(settings).status(), kUnusable, {"/nowhere"});
}

TEST_F(Driver, ThatCrashesOrHangsIsAnAnswerToo) {
  Show("crash=1");
  ExpectSays(Choose("cuda"), kUnusable, {"asking it ended by signal 6"});
  Show("hang=1");
  AskOptions ask;
  ask.library = kDriver;
  ask.limit_micros = 100'000;
  EXPECT_EQ(AskDriverApart(*ParseDevice("cuda"), ask).error, "it gave no answer in 0 s");
}

// A driver may take seconds to leave a device: its process is not waited for, nor forgotten.
TEST_F(Driver, WhoIsSlowToEndIsReapedLater) {
  Show("count=1");
  AskOptions ask;
  ask.library = kDriver;
  ask.end_micros = 0;
  EXPECT_EQ(AskDriverApart(*ParseDevice("cuda"), ask).error, "");
  // Sees children that run, waits for one to end, and leaves it to be reaped.
  siginfo_t info = {};
  int turns = 0;
  while (waitid(P_ALL, 0, &info, WEXITED | WNOWAIT) == 0 && turns < 1'000'000) {
    ++turns;
    sched_yield();
  }
  EXPECT_EQ(errno, ECHILD) << "a zombie is left";
}

TEST_F(Driver, HasDevicesThatWillNotDo) {
  Show("count=2");
  ExpectSays(Choose("cuda:7"), kUnusable,
             {"cuda:7 is not there", "0 (Paper 9000", "1 (Paper 9000", "name one of these"});
  ExpectSays(Choose("cuda:GPU-00010203-0405-0607-0809-0a0b0c0d0e00"), kUnusable, {"is not there"});
  ExpectSays(Choose("cuda", 3), kBadCount,
             {"--tensor-parallel-size: 3 ranks", "1 (Paper 9000", "use at most 2"});
  ExpectSays(Choose("cuda:0,00010203-0405-0607-0809-0a0b0c0d0e0f", 2), kBadCount, {"named twice"});
  Show("major=7");
  ExpectSays(Choose("cuda"), kUnusable, {"compute capability 7.0", "8.0 or newer"});
  Show("mode=2");
  ExpectSays(Choose("cuda"), kUnusable, {"prohibited", "nvidia-smi"});
  Show("retain=46");
  ExpectSays(Choose("cuda"), kUnusable, {"busy", "CUDA_ERROR_DEVICE_UNAVAILABLE (46)"});
  Show("retain=999");
  ExpectSays(Choose("cuda"), kUnusable, {"an unknown error (999)"});
  Show("free_mib=300");
  ExpectSays(Choose("cuda:0"), kUnusable, {"0.3 of 80.0 GiB free", "too small", "1.0 GiB"});
}

TEST_F(Driver, DevicesAreNamedByIndexFromThenOn) {
  Show("count=3 free_mib=2048");
  const auto one = ChooseDevice(Settings("cuda"));
  ASSERT_TRUE(one.ok()) << one.status();
  EXPECT_EQ(one->device, "cuda:0");
  const auto named = ChooseDevice(Settings("cuda:GPU-20212223-2425-2627-2829-2a2b2c2d2e2f"));
  ASSERT_TRUE(named.ok()) << named.status();
  EXPECT_EQ(named->device, "cuda:2");
  ASSERT_EQ(named->gpus.size(), 1u);
  EXPECT_EQ(named->gpus[0].major, 9);
  EXPECT_EQ(PlannedBytes(*named), int64_t{1536} << 20) << "half a GiB is the driver's";
  EXPECT_EQ(ChooseDevice(Settings("cpu"))->device, "cpu");
}

TEST_F(Driver, ARankOpensItsOwn) {
  Show("count=3");
  GpuSettings settings;
  settings.plugin = kFakes + "/good";
  settings.driver_library = kDriver;
  settings.nccl = kNccl;
  settings.ranks = 2;
  for (int rank = 0; rank < 2; ++rank) {
    const std::string index = rank == 0 ? "2" : "1";
    ExpectSays(OpenGpuOfRank(settings, "cuda:2,1", rank).status(), kUnusable,
               {"cuda:" + index + " (Paper 9000)", "device " + index + ", a cuda:"});
  }
  ExpectSays(OpenGpuOfRank(settings, "cuda:2,1", 2).status(), kUnusable, {"no device for rank 2"});
  Show("count=1");
  ExpectSays(OpenGpuOfRank(settings, "cuda:2,1", 0).status(), kUnusable, {"cuda:2 is gone"});
  Show("init=100");
  ExpectSays(OpenGpuOfRank(settings, "cuda:0", 0).status(), kUnusable, {"is gone", "NO_DEVICE"});
  ExpectSays(OpenGpuEstimate(settings, {}).status(), kUnusable, {"device -1"});
}

TEST_F(Driver, SeveralRanksNeedNccl) {
  Show("count=2");
  DeviceSettings settings = Settings("cuda", 2);
  settings.nccl = "/nowhere/libnccl.so.2";
  ExpectSays(
      ChooseDevice(settings).status(), kUnusable,
      {"/nowhere/libnccl.so.2", "NCCL 2.28.9", "--nccl-library", "--tensor-parallel-size 1"});
}

TEST(GpuSettings, CublasLtIsLookedForWhereBatchInvarianceIsGivenUpAndNotDemanded) {
  GpuSettings settings;
  settings.cublaslt = QUIRE_BINARY_DIR "/tests/fake_cublaslt/good";
  std::string why;
  EXPECT_EQ(FindCublasLt(settings, why), "");
  EXPECT_EQ(why, "") << "nobody asks for it";
  settings.batch_invariant = false;
  EXPECT_EQ(FindCublasLt(settings, why), settings.cublaslt + "/libcublasLt.so.13") << why;
  settings.cublaslt = "/nowhere";
  EXPECT_EQ(FindCublasLt(settings, why), "");
  EXPECT_NE(why.find("libcublasLt.so.13 cannot be used"), std::string::npos) << why;
}

TEST_F(Driver, AutoFallsBackToTheCpuAndSaysWhy) {
  DeviceSettings settings = Settings("auto");
  EXPECT_EQ(ChooseDevice(settings)->device, "cuda:0");
  Show("version=12040");
  EXPECT_NE(ChooseDevice(settings)->note.find("12.4"), std::string::npos);
  EXPECT_EQ(ChooseDevice(settings)->device, "cpu");
  settings.plugin.clear();  // none beside the test: nothing is asked
  EXPECT_EQ(ChooseDevice(settings)->note, "");
  settings.plugin = "/nowhere";
  EXPECT_TRUE(absl::IsUnavailable(ChooseDevice(settings).status())) << "it was named";
  EXPECT_EQ(ChooseDevice(Settings("cpu"))->note, "");
}

TEST(CudaPlugin, OfAnotherBuildIsRefused) {
  struct Case {
    const char* folder;
    const char* mention;
  };
  for (const Case c : {Case{"another_build", "it is of build 0123456789ab, this worker of "},
                       Case{"another_version", "its table is of version 99, not "},
                       Case{"no_table", "it has no quire_cuda_table"},
                       Case{"nowhere", "cannot open shared object file"}}) {
    kernels::LibraryPlaces places;
    places.named = kFakes + "/" + c.folder;
    const auto plugin = CudaPlugin::Open(places);
    ASSERT_TRUE(absl::IsUnavailable(plugin.status()));
    const std::string text = StatusMessage(plugin.status());
    for (const char* part : {c.mention, c.folder, "--cuda-plugin", "--device cpu"}) {
      EXPECT_NE(text.find(part), std::string::npos) << text;
    }
    EXPECT_EQ(text.find('\n'), std::string::npos) << text;
  }
}

TEST(CudaPlugin, TellsWhyADeviceDoesNotOpen) {
  kernels::LibraryPlaces places;
  places.named = kFakes + "/good";
  const auto plugin = CudaPlugin::Open(places);
  ASSERT_TRUE(plugin.ok()) << plugin.status();
  EXPECT_EQ((*plugin)->toolkit_version(), 13000);
  QuireCudaRequest request = {};
  request.device = 3;
  request.description = "cuda:3 (Paper 9000)";
  EXPECT_EQ(StatusMessage((*plugin)->OpenBackend(request).status()),
            "--device: cuda:3 (Paper 9000) cannot be opened (code 1): device 3, a cuda:3 "
            "(Paper 9000), is made of paper");
}

struct Outcome {
  int code = -1;
  std::string output;
};

Outcome RunWorker(const std::string& words, const std::string& flags) {
  const std::string command = "FAKE_CUDA='" + words + "' LD_LIBRARY_PATH=" + kFakes + "/driver " +
                              QUIRE_BINARY_DIR "/bin/quire-worker --log-level=error --model=" +
                              QUIRE_SOURCE_DIR "/models/demo " + flags + " 2>&1";
  Outcome outcome;
  FILE* pipe = popen(command.c_str(), "r");
  char piece[4096];
  for (size_t got; (got = fread(piece, 1, sizeof(piece), pipe)) > 0;) {
    outcome.output.append(piece, got);
  }
  const int status = pclose(pipe);
  if (WIFEXITED(status)) outcome.code = WEXITSTATUS(status);
  return outcome;
}

TEST(WorkerOnCuda, EndsInOneLineWithItsCode) {
  const std::string plugin = "--cuda-plugin=" + kFakes + "/good ";
  struct Case {
    std::string words, flags;
    int code;
    const char* mention;
  };
  for (const Case& c :
       {Case{"", "--device=cuda --cuda-plugin=/nowhere", 4, "/nowhere"},
        Case{"", "--device=cuda --cuda-plugin=" + kFakes + "/another_build", 4, "this worker of"},
        Case{"version=12040", plugin + "--device=cuda", 4, "serves CUDA up to 12.4"},
        Case{"retain=46", plugin + "--device=cuda:0", 4, "busy"},
        Case{"count=2", plugin + "--device=cuda:5", 4, "cuda:5 is not there"},
        Case{"count=2", plugin + "--device=cuda --tensor-parallel-size=4", 2, "use at most 2"},
        Case{"count=2", plugin + "--device=cuda --tensor-parallel-size=2 --nccl-library=/nowhere",
             4, "NCCL 2.28.9"},
        Case{"", "--device=gpu", 2, "--device"},
        Case{"", "--device=cuda:0,1", 2, "names 2 devices for 1 ranks"},
        Case{"", "--device=cuda --dtype=float32", 2, "--dtype"},
        // The worker itself only plans, with a backend of no device.
        Case{"", plugin + "--device=cuda:0", 4, "is made of paper"},
        Case{"", plugin + "--kv-cache-dtype=float32", 2, "--kv-cache-dtype: a GPU keeps"},
        Case{"version=12040", plugin + "--plan", 0, "\"device\":\"cpu"}}) {
    const Outcome outcome = RunWorker(c.words, c.flags);
    EXPECT_EQ(outcome.code, c.code) << c.flags << ": " << outcome.output;
    EXPECT_NE(outcome.output.find(c.mention), std::string::npos) << outcome.output;
    EXPECT_EQ(outcome.output.find('\n'), outcome.output.size() - 1) << outcome.output;
  }
}

}  // namespace
}  // namespace quire
