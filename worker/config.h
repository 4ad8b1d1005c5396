// What a worker can be told: the settings, their flags, and what is checked before loading.
//
// A value; filled in by main once.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "common/config/schema.h"
#include "common/status.h"

namespace quire {

struct WorkerConfig {
  std::string model;  // folder or .gguf
  std::vector<std::string> allowed_model_roots;
  std::vector<std::string> served_model_names;  // the model's own name when empty
  std::string dtype = "auto";
  int32_t max_model_len = 0;  // 0: the model's context, or what fits
  int32_t max_num_seqs = 64;
  int32_t max_num_batched_tokens = 2048;
  int32_t max_waiting_requests = 1024;
  int32_t max_choices = 16;
  std::string scheduling_policy = "fcfs";
  int32_t max_step_time_ms = -1;     // −1: by the device; 0: no limit
  int32_t block_size = 0;            // 0: by the device
  config::Bytes kv_cache_memory{0};  // 0: by the memory plan
  config::Bytes router_memory{0};    // 0: a share of what the memory plan leaves
  std::string kv_cache_dtype = "auto";
  bool enable_prefix_caching = true;
  bool dequantize_weights = false;

  std::string device = "auto";
  std::string cuda_plugin;   // empty: by the table of places
  std::string nccl_library;  // the same
  bool batch_invariant = true;
  std::string cublaslt_library;  // the same as of nccl_library
  int32_t threads = 0;           // 0: by quota and affinity
  std::string cpu_isa = "auto";
  std::string activation_dtype = "float32";
  int32_t tensor_parallel_size = 1;
  std::string rank_backend = "thread";
  config::Duration rank_timeout{5'000};
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
  config::Duration slow_client_timeout{30'000};
  config::Duration watchdog_grace{10'000};
  int32_t max_unsent_events = 65'536;  // cache events, for each router
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
