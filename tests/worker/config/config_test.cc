#include "worker/config.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "common/config/describe.h"
#include "worker/host_cpus.h"
#include "worker/named_model.h"

namespace quire {
namespace {

std::string CheckError(const std::vector<std::string>& args) {
  WorkerConfig config;
  config::Schema schema = MakeWorkerSchema(config);
  const auto parsed = schema.Parse(args, {});
  if (!parsed.ok()) return StatusMessage(parsed.status());
  return StatusMessage(CheckWorkerConfig(config));
}

TEST(WorkerConfig, DefaultsAreThoseOfTheDesign) {
  const WorkerConfig c;
  EXPECT_EQ(c.listen, "127.0.0.1:9000");
  EXPECT_FALSE(c.core_dumps);
  EXPECT_EQ(c.http_port, 9001);
  EXPECT_EQ(c.engine.max_num_seqs, 64);
  EXPECT_EQ(c.engine.max_num_batched_tokens, 2048);
  EXPECT_EQ(BlockSizeOf(c), 16);
  EXPECT_TRUE(c.engine.prefix_caching);
  EXPECT_EQ(c.engine.max_waiting_requests, 1024);
  EXPECT_EQ(c.watchdog.grace, 10 * kMicrosPerSecond);
  EXPECT_EQ(c.drain_timeout.milliseconds, 30000);
  EXPECT_LT(c.drain_hard_limit.milliseconds, 0) << "not given: after the drain time";
  EXPECT_EQ(CheckError({"--model=m"}), "");
}

// Each of these fields has no other writer than its flag.
TEST(WorkerConfig, FlagsAreWrittenIntoWhatTheRoomsUse) {
  WorkerConfig c;
  config::Schema schema = MakeWorkerSchema(c);
  EXPECT_EQ(schema.Parse({}, {})->Find("max-choices").values.front(), "16");
  const auto parsed = schema.Parse(
      {"--max-num-seqs=7", "--max-num-batched-tokens=32", "--max-waiting-requests=9",
       "--max-choices=3", "--scheduling-policy=priority", "--no-enable-prefix-caching",
       "--slow-client-timeout=2s", "--rank-timeout=3s", "--watchdog-grace=4s", "--cuda-plugin=p",
       "--nccl-library=n", "--no-batch-invariant", "--cublaslt-library=b", "--threads=2",
       "--cpu-isa=avx2", "--activation-dtype=bfloat16", "--tensor-parallel-size=2"},
      {});
  ASSERT_TRUE(parsed.ok()) << parsed.status();
  EXPECT_EQ(c.engine.max_num_seqs, 7);
  EXPECT_EQ(c.engine.max_num_batched_tokens, 32);
  EXPECT_EQ(c.engine.max_waiting_requests, 9);
  EXPECT_EQ(c.engine.max_choices, 3);
  EXPECT_EQ(c.engine.scheduling_policy, SchedulingPolicy::kPriority);
  EXPECT_FALSE(c.engine.prefix_caching);
  EXPECT_EQ(c.engine.slow_client_timeout_us, 2 * kMicrosPerSecond);
  EXPECT_EQ(c.ranks.step_timeout_us, 3 * kMicrosPerSecond);
  EXPECT_EQ(c.watchdog.grace, 4 * kMicrosPerSecond);
  EXPECT_EQ(c.gpu.plugin, "p");
  EXPECT_EQ(c.gpu.nccl, "n");
  EXPECT_FALSE(c.gpu.batch_invariant);
  EXPECT_EQ(c.gpu.cublaslt, "b");
  EXPECT_EQ(c.gpu.ranks, 2);
  EXPECT_EQ(c.cpu.threads, 2);
  EXPECT_EQ(c.cpu.isa, "avx2");
  EXPECT_EQ(c.cpu.activation_dtype, "bfloat16");
}

TEST(WorkerConfig, WeightsTakeVllmsTypesButFloat32OnAGpu) {
  for (const char* type : {"auto", "float32", "float16", "bfloat16", "half", "float"}) {
    const std::string flag = std::string("--dtype=") + type;
    EXPECT_EQ(CheckError({"--model=m", flag}), "") << type;
    const bool refused =
        std::string_view(type).starts_with("float") && flag.find("16") == flag.npos;
    EXPECT_EQ(CheckError({"--model=m", "--device=cuda", flag}),
              refused ? "--dtype: a GPU keeps weights in bfloat16 or float16, is '" +
                            std::string(type) + "'; leave it out, or set --device cpu"
                      : "");
  }
  EXPECT_NE(CheckError({"--model=m", "--dtype=fp8"}).find("--dtype"), std::string::npos);
}

TEST(WorkerConfig, RoutersHaveANameUnlessOthersAreGiven) {
  WorkerConfig c;
  config::Schema schema = MakeWorkerSchema(c);
  ASSERT_TRUE(schema.Parse({"--model=m"}, {}).ok());
  EXPECT_EQ(c.tls_router_names, std::vector<std::string>{"quire-router"});
  ASSERT_TRUE(
      schema.Parse({"--model=m", "--tls-router-name=a", "--tls-router-name=spiffe://b/c"}, {})
          .ok());
  EXPECT_EQ(c.tls_router_names, (std::vector<std::string>{"a", "spiffe://b/c"}));
  for (const std::string& wrong :
       {std::string(), std::string("*.example"), std::string("a b"), std::string(2049, 'a')}) {
    EXPECT_NE(CheckError({"--model=m", "--tls-router-name=" + wrong}).find("--tls-router-name"),
              std::string::npos)
        << wrong;
  }
  EXPECT_EQ(CheckError({"--model=m", "--tls-router-name=" + std::string(2048, 'a')}), "");
}

TEST(WorkerConfig, TheStepTimeIsTheDevicesUnlessItIsGiven) {
  WorkerConfig c;
  EXPECT_EQ(StepTimeMillis(c, /*on_gpu=*/false), 200);
  EXPECT_EQ(StepTimeMillis(c, /*on_gpu=*/true), 50);
  for (const int32_t given : {0, 1, 7000}) {
    c.max_step_time_ms = given;
    EXPECT_EQ(StepTimeMillis(c, false), given);
    EXPECT_EQ(StepTimeMillis(c, true), given);
  }
}

TEST(WorkerConfig, ThePageIsTheDevicesUnlessItIsGiven) {
  WorkerConfig c;
  for (const char* device : {"auto", "cpu"}) {
    c.device = device;
    EXPECT_FALSE(AsksForGpu(c)) << device;
    EXPECT_EQ(BlockSizeOf(c), 16) << device;
  }
  for (const char* device : {"cuda", "cuda:1"}) {
    c.device = device;
    EXPECT_TRUE(AsksForGpu(c)) << device;
    EXPECT_EQ(BlockSizeOf(c), 64) << device;
  }
  c.block_size = 32;
  EXPECT_EQ(BlockSizeOf(c), 32);
}

TEST(WorkerConfig, WhatAGpuKeepsOtherwise) {
  for (const char* type : {"auto", "bfloat16", "float16", "fp8"}) {
    EXPECT_EQ(CheckError({"--model=m", "--device=cuda", std::string("--kv-cache-dtype=") + type}),
              "");
  }
  EXPECT_EQ(CheckError({"--model=m", "--device=cuda", "--kv-cache-dtype=float32"}),
            "--kv-cache-dtype: a GPU keeps keys and values in bfloat16, float16 or fp8, is "
            "'float32'; leave it out, or set --device cpu");
  EXPECT_EQ(CheckError({"--model=m", "--device=cuda", "--dequantize-weights"}), "");
  EXPECT_EQ(
      CheckError({"--model=m", "--device=cuda", "--activation-dtype=int8"}),
      "--activation-dtype: a GPU multiplies 16-bit floats (auto), or codes where a checkpoint asks "
      "for that (w8a8), is 'int8'; leave it out, or set --device cpu");
  EXPECT_EQ(CheckError({"--model=m", "--device=cuda", "--activation-dtype=w8a8"}), "");
  EXPECT_EQ(CheckError({"--model=m", "--activation-dtype=w8a8"}), "");
  EXPECT_EQ(CheckError({"--model=m", "--dequantize-weights"}),
            "--dequantize-weights: quantised weights stay as they are on the CPU; leave it out, or "
            "set --device cuda");
  EXPECT_EQ(CheckError({"--model=m", "--device=cuda-emulated"}),
            "--device: must be auto, cpu, cuda, or cuda: with indices or UUIDs parted by commas, "
            "as in cuda:0,1, is 'cuda-emulated'")
      << "the emulated device is in the worker of the tests alone";
}

TEST(WorkerConfig, NamesOfModelsAreNoPaths) {
  for (const char* const name : {"hf:org/repo", "hf.co/org/repo", "s3://bucket/m", "oci://r/m:1",
                                 "mlflow:models:/m@best", "https://host/m.gguf", "qwen3:4b"}) {
    EXPECT_TRUE(IsModelName(name)) << name;
  }
  for (const char* const path :
       {"", ".", "/models", "./hf", "folder/model", "m.gguf", "org/repo"}) {
    EXPECT_FALSE(IsModelName(path)) << path;
  }
}

TEST(WorkerConfig, ErrorsNameTheFlagAndAValueThatWorks) {
  EXPECT_EQ(
      CheckError({}),
      "--model is missing; give a Hugging Face folder, a GGUF file, or a name as hf:ORG/REPO");
  EXPECT_EQ(CheckError({"--model=m", "--block-size=48"}),
            "--block-size: must be 16, 32 or 64, is 48");
  EXPECT_EQ(CheckError({"--model=m", "--tensor-parallel-size=2", "--rank-backend=process"}), "");
  EXPECT_EQ(CheckError({"--model=m", "--tensor-parallel-size=2", "--enable-expert-parallel"}), "");
  EXPECT_EQ(CheckError({"--model=m", "--enable-expert-parallel"}),
            "--enable-expert-parallel: divides experts among ranks, and --tensor-parallel-size is "
            "1; set that above 1, or leave this out");
  EXPECT_EQ(CheckError({"--model=m", "--tensor-parallel-size=65"}),
            "--tensor-parallel-size: must be in [1, 64], is 65");
  EXPECT_EQ(CheckError({"--model=m", "--rank-backend=fork"}),
            "--rank-backend: must be one of thread, process, is 'fork'");
  EXPECT_EQ(CheckError({"--model=m", "--enable-prefix-caching"}), "");
  EXPECT_EQ(CheckError({"--model=m", "--no-enable-prefix-caching"}), "");
  EXPECT_EQ(CheckError({"--model=m", "--max-num-seqs=0"}),
            "--max-num-seqs: must be in [1, 4096], is 0");
  EXPECT_EQ(CheckError({"--model=m", "--max-model-len=1"}),
            "--max-model-len: must be at least 2, is 1");
  EXPECT_EQ(CheckError({"--model=m", "--device=gpu"}),
            "--device: must be auto, cpu, cuda, or cuda: with indices or UUIDs parted by commas, "
            "as in cuda:0,1, is 'gpu'");
  EXPECT_EQ(CheckError({"--model=m", "--device=cuda:0,1", "--tensor-parallel-size=3"}),
            "--device: names 2 devices for 3 ranks; name as many as --tensor-parallel-size says");
  EXPECT_EQ(CheckError({"--modle=m"}), "unknown flag --modle; did you mean --model?");
  EXPECT_EQ(CheckError({"--model=m", "--listen=nonsense"}),
            "--listen: must be HOST:PORT, as in 127.0.0.1:9000, is 'nonsense'");
  EXPECT_EQ(CheckError({"--model=m", "--served-model-name="}),
            "--served-model-name: must have 1 to 256 bytes");
  EXPECT_EQ(CheckError({"--model=m", "--worker-id=" + std::string(128, 'x')}), "");
  for (const std::string& id :
       {std::string(129, 'x'), std::string("a b"), std::string("\xC3\xA9")}) {
    EXPECT_EQ(CheckError({"--model=m", "--worker-id=" + id}),
              "--worker-id: must be at most 128 printable ASCII characters without spaces, such as "
              "rack3-gpu0");
  }
}

TEST(WorkerConfig, ACollectorsPasswordIsNotShownAgain) {
  WorkerConfig config;
  config::Schema schema = MakeWorkerSchema(config);
  const auto parsed = schema.Parse(
      {"--show-config", "--otlp-traces-endpoint=http://me:hunter2@collector:4318"}, {});
  ASSERT_TRUE(parsed.ok()) << parsed.status();
  const std::string shown = config::AnswerText(schema, *parsed).value_or("");
  EXPECT_NE(shown.find("otlp-traces-endpoint"), std::string::npos) << shown;
  EXPECT_EQ(shown.find("hunter2"), std::string::npos) << shown;
}

TEST(WorkerConfig, OffLoopbackNeedsInsecure) {
  EXPECT_EQ(CheckError({"--model=m", "--listen=0.0.0.0:9000"}),
            "--listen: 0.0.0.0 is not loopback and TLS is not configured; use 127.0.0.1:9000, "
            "give --tls-cert-file, --tls-key-file and --tls-ca-file, or add --insecure");
  EXPECT_EQ(CheckError({"--model=m", "--listen=0.0.0.0:9000", "--insecure"}), "");
  EXPECT_EQ(CheckError({"--model=m", "--listen=0.0.0.0:9000", "--tls-cert-file=c",
                        "--tls-key-file=k", "--tls-ca-file=a"}),
            "");
  EXPECT_NE(CheckError({"--model=m", "--tls-cert-file=c"}).find("--tls-key-file"),
            std::string::npos);
  EXPECT_EQ(CheckError({"--model=m", "--listen=[::1]:9000"}), "");
  EXPECT_EQ(CheckError({"--model=m", "--listen=localhost:0"}), "");
}

TEST(ModelBaseName, IsTheLastComponent) {
  EXPECT_EQ(ModelBaseName("models/demo/"), "demo");
  EXPECT_EQ(ModelBaseName("/a/b.gguf"), "b");
  EXPECT_EQ(ModelBaseName("."), "model");
}

TEST(HostCpus, QuotaTexts) {
  EXPECT_EQ(QuotaCpus("200000 100000"), 2.0);
  EXPECT_EQ(QuotaCpus("50000 100000"), 0.5);
  for (const char* unlimited : {"max 100000", "-1 100000", "", "0 100000", "100000 0", "junk"}) {
    EXPECT_EQ(QuotaCpus(unlimited), 0.0) << unlimited;
  }
}

TEST(HostCpus, ThreadsAreTheTightestLimitByWorkers) {
  EXPECT_EQ(DefaultThreads({8, {}}, 1), 8);
  EXPECT_EQ(DefaultThreads({8, {"max 100000", "350000 100000"}}, 1), 3);
  EXPECT_EQ(DefaultThreads({8, {"300000 100000", "200000 100000"}}, 1), 2);
  EXPECT_EQ(DefaultThreads({8, {}}, 3), 2);
  EXPECT_EQ(DefaultThreads({1, {"10000 100000"}}, 4), 1);
}

class FakeRoot {
 public:
  FakeRoot() : path_(testing::TempDir() + "quire_host_cpus") { std::filesystem::remove_all(path_); }
  ~FakeRoot() { std::filesystem::remove_all(path_); }
  void Write(const std::string& name, const std::string& text) {
    const std::filesystem::path file = path_ + name;
    std::filesystem::create_directories(file.parent_path());
    std::ofstream(file) << text;
  }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

TEST(HostCpus, ReadsEveryCgroupUpToTheRoot) {
  FakeRoot root;
  root.Write("/proc/self/cgroup", "0::/pod/container\n");
  root.Write("/sys/fs/cgroup/pod/container/cpu.max", "150000 100000\n");
  root.Write("/sys/fs/cgroup/pod/cpu.max", "max 100000\n");
  const HostCpus cpus = ReadHostCpus(root.path());
  EXPECT_GE(cpus.affinity, 1);
  EXPECT_EQ(cpus.quotas, (std::vector<std::string>{"150000 100000", "max 100000"}));
}

TEST(HostCpus, ReadsVersionOne) {
  FakeRoot root;
  root.Write("/proc/self/cgroup", "5:memory:/m\n4:cpu,cpuacct:/c\n");
  root.Write("/sys/fs/cgroup/cpu/c/cpu.cfs_quota_us", "400000\n");
  root.Write("/sys/fs/cgroup/cpu/c/cpu.cfs_period_us", "100000\n");
  EXPECT_EQ(ReadHostCpus(root.path()).quotas, std::vector<std::string>{"400000 100000"});
}

TEST(HostCpus, NothingThereIsNoQuota) { EXPECT_TRUE(ReadHostCpus("/nonexistent").quotas.empty()); }

}  // namespace
}  // namespace quire
