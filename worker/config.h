// What a worker can be told: the settings, their flags, and what is checked before loading.
//
// A value; filled in by main once.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "common/config/schema.h"
#include "common/status.h"
#include "kernels/backend.h"
#include "worker/device/gpu_backend.h"
#include "worker/engine/engine.h"
#include "worker/ranks/rank_group.h"
#include "worker/watchdog.h"

namespace quire {

struct WorkerConfig {
  WorkerConfig() { engine.max_choices = 16; }  // a bare engine serves one

  // What the rooms use; a default is the member's own. What flags do not say is filled in at the
  // start (loaded_worker.cc, rank_programs.cc, main.cc).
  EngineOptions engine;
  RankGroupOptions ranks;
  GpuSettings gpu;
  kernels::CpuOptions cpu;
  WatchdogOptions watchdog;

  std::string model;  // folder or .gguf
  std::vector<std::string> allowed_model_roots;
  std::vector<std::string> served_model_names;  // the model's own name when empty
  std::string dtype = "auto";
  int32_t max_model_len = 0;         // 0: the model's context, or what fits
  int32_t max_step_time_ms = -1;     // −1: by the device; 0: no limit
  int32_t block_size = 0;            // 0: by the device
  config::Bytes kv_cache_memory{0};  // 0: by the memory plan
  config::Bytes router_memory{0};    // 0: a share of what the memory plan leaves
  std::string kv_cache_dtype = "auto";
  bool dequantize_weights = false;

  std::string device = "auto";
  int32_t tensor_parallel_size = 1;
  std::string rank_backend = "thread";
  int32_t workers_on_host = 1;

  std::string listen = "127.0.0.1:9000";
  int32_t http_port = 9001;
  std::string worker_id;  // empty: the machine's name and the port
  bool insecure = false;
  std::string tls_cert_file;
  std::string tls_key_file;
  std::string tls_ca_file;
  std::vector<std::string> tls_router_names{"quire-router"};
  config::Duration drain_timeout{30'000};
  config::Duration drain_hard_limit{-1};  // not given: drain_timeout and 30 s
  int32_t max_unsent_events = 65'536;     // cache events, for each router
  int32_t ready_fd = -1;
  bool core_dumps = false;

  bool plan = false;                // tells the memory plan and leaves
  config::Bytes plan_memory{0};     // 0: this machine's
  config::Bytes plan_bandwidth{0};  // a second; 0: measured

  std::string request_log;           // empty: none
  std::string otlp_traces_endpoint;  // empty: by OTEL_EXPORTER_OTLP_ENDPOINT, or none

  // As main got them, without the program's name: what a rank process is started with.
  std::vector<std::string> own_arguments;

  std::string log_level = "info";
  std::string log_format = "auto";
};

// --max-step-time-ms, or what it is by default on that device; 0: no limit.
int64_t StepTimeMillis(const WorkerConfig& config, bool on_gpu);

// Whether --device says a GPU, or what stands for one in tests; auto is the CPU.
bool AsksForGpu(const WorkerConfig& config);
// Whether bits never depend on what else is computed: always on the CPU, whatever the setting.
bool IsBatchInvariant(const WorkerConfig& config);
// --block-size, or what it is by default on the device.
int32_t BlockSizeOf(const WorkerConfig& config);

// The schema of quire-worker; writes to `config`, which outlives it.
config::Schema MakeWorkerSchema(WorkerConfig& config);

// What no single flag's range says. INVALID_ARGUMENT names the flag and a value that works.
absl::Status CheckWorkerConfig(const WorkerConfig& config);

// The last component of a model's path without ".gguf": the name it is served under by default.
std::string ModelBaseName(std::string_view path);

}  // namespace quire
