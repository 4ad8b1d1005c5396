// The settings of a worker, their flags, and what is checked before loading.
//
// A value; filled in by main once.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "common/config/schema.h"
#include "common/status.h"
#include "kernels/backend.h"
#include "worker/constrain/constraint_compiler.h"
#include "worker/device/gpu_backend.h"
#include "worker/engine/engine.h"
#include "worker/ranks/rank_group.h"
#include "worker/watchdog.h"

namespace quire {

struct WorkerConfig {
  WorkerConfig() { engine.max_choices = 16; }  // a bare engine serves one

  // The settings that the rooms use; each default is the member's own. Values that flags do not set
  // are filled in at the start (loaded_worker.cc, rank_programs.cc, main.cc).
  EngineOptions engine;
  RankGroupOptions ranks;
  GpuSettings gpu;
  kernels::CpuOptions cpu{.activation_dtype = "auto"};
  WatchdogOptions watchdog;
  ConstraintOptions constraint;

  std::string model;  // folder or .gguf
  std::vector<std::string> allowed_model_roots;
  std::vector<std::string> served_model_names;  // the model's own name when empty
  std::string chat_template;                    // a file or a built-in name; empty: the model's own
  std::string dtype = "auto";
  int32_t max_model_len = 0;         // 0: the model's context, or what fits
  int32_t max_step_time_ms = -1;     // −1: chosen by the device; 0: no limit
  int32_t block_size = 0;            // 0: chosen by the device
  config::Bytes kv_cache_memory{0};  // 0: 0: from the memory plan
  config::Bytes router_memory{0};    // 0: a share of what the memory plan leaves
  std::string kv_cache_dtype = "auto";
  bool dequantize_weights = false;
  std::string speculative_config;   // JSON; empty: nothing is drafted
  std::string draft_model;          // its model, found on this machine; empty: as it stands there
  std::vector<int> skipped_layers;  // of a draft model that is a part of the model; set by no flag

  bool enable_lora = false;
  int32_t max_loras = 8;
  int32_t max_lora_rank = 16;
  std::vector<std::string> lora_modules;  // worker/adapter_setup.h reads them
  std::string lora_dir;                   // of the adapters that are wanted; empty: none is watched

  int32_t mask_threads = 0;  // 0: chosen by the CPUs
  int32_t max_queued_constraints = 256;
  uint64_t constraint_state_bytes = uint64_t{128} << 20;

  std::string device = "auto";
  int32_t tensor_parallel_size = 1;
  bool enable_expert_parallel = false;
  std::string rank_backend = "thread";
  int32_t workers_on_host = 1;
  config::Bytes max_memory{0};  // 0: the memory of this machine
  int64_t AtMostMaxMemory(int64_t bytes) const {
    return max_memory.value > 0 && max_memory.value < bytes ? max_memory.value : bytes;
  }

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

  bool plan = false;                // prints the memory plan and exits
  config::Bytes plan_memory{0};     // 0: 0: the memory of this machine
  config::Bytes plan_bandwidth{0};  // bytes a second; 0: measured

  std::string request_log;           // empty: none
  std::string otlp_traces_endpoint;  // empty: by OTEL_EXPORTER_OTLP_ENDPOINT, or none

  // As main got them, without the program's name: rank processes are started with them.
  std::vector<std::string> own_arguments;

  std::string log_level = "info";
  std::string log_format = "auto";
};

// --max-step-time-ms, or its default on that device; 0: no limit.
int64_t StepTimeMillis(const WorkerConfig& config, bool on_gpu);

// Whether --device names a GPU, or the device that replaces one in tests; auto is the CPU.
bool AsksForGpu(const WorkerConfig& config);
// Whether bits never depend on what else is computed: always true on the CPU, whatever the setting.
bool IsBatchInvariant(const WorkerConfig& config);
// --block-size, or its default on the device.
int32_t BlockSizeOf(const WorkerConfig& config);

// The schema of quire-worker; writes to `config`, which outlives it.
config::Schema MakeWorkerSchema(WorkerConfig& config);

// Checks that no single flag's range covers. INVALID_ARGUMENT names the flag and a value that
// works.
absl::Status CheckWorkerConfig(const WorkerConfig& config);

// The last component of a model's path without ".gguf": the default served name.
std::string ModelBaseName(std::string_view path);

}  // namespace quire
