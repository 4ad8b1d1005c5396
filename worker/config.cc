#include "worker/config.h"

#include <algorithm>

#include "common/host_port.h"
#include "common/text/builtin_templates.h"
#include "common/wire/sampling.h"
#include "kernels/communicator.h"
#include "worker/adapter_setup.h"
#include "worker/constraint_setup.h"
#include "worker/device/device_request.h"
#include "worker/device/linked_device.h"
#include "worker/draft/speculation.h"
#include "worker/network_flags.h"

namespace quire {
namespace {

constexpr size_t kMaxWorkerIdBytes = 128;
constexpr size_t kMaxRouterNameBytes = 2048;

void AddModelFlags(config::Schema& schema, WorkerConfig& c) {
  schema.Group("Model");
  schema.Add({.name = "model",
              .help =
                  "Hugging Face folder, GGUF file, or folder with one GGUF file, to serve; or a "
                  "name that `quire pull` takes, such as hf:ORG/REPO: the worker then pulls "
                  "what is not on its machine.",
              .target = &c.model,
              .value_name = "DIR|FILE.gguf|NAME"});
  schema.Add({.name = "allowed-model-root",
              .help = "Folder outside the model's that links in it may lead to, such as a store of "
                      "weights: clients may get to read what tokenizer and template files there "
                      "hold. Hugging Face caches need none.",
              .target = &c.allowed_model_roots,
              .value_name = "DIR",
              .default_text = "none"});
  schema.Add({.name = "served-model-name",
              .help = "Name under which clients ask for the model.",
              .target = &c.served_model_names,
              .value_name = "NAME",
              .default_text = "the model's folder or file name"});
  schema.Add({.name = "chat-template",
              .help = "Chat template in place of the model's own: a file of Jinja, or one of " +
                      text::BuiltinTemplateNames() + ". All workers of a model take the same.",
              .target = &c.chat_template,
              .value_name = "FILE|NAME",
              .default_text = "the model's own"});
  schema.Add({.name = "max-model-len",
              .help = "Longest prompt and answer together, in tokens.",
              .target = &c.max_model_len,
              .min = 0,
              .max = 1 << 26,
              .default_text = "the model's context, or what fits in memory"});
  schema.Add({.name = "dtype",
              .help = "Type of the weights in memory, converted to it when they are loaded; auto "
                      "keeps them as they are stored, and quantised ones always stay. half is "
                      "float16, float is float32, which a GPU has not. Another type is another "
                      "numerics class.",
              .target = &c.dtype,
              .choices = {"auto", "float32", "float16", "bfloat16", "half", "float"}});
}

void AddBatchFlags(config::Schema& schema, WorkerConfig& c) {
  schema.Group("Batching and memory");
  schema.Add({.name = "max-num-seqs",
              .help = "Sequences that are computed at once.",
              .target = &c.engine.max_num_seqs,
              .min = 1,
              .max = 4096});
  schema.Add({.name = "max-num-batched-tokens",
              .help = "Tokens that one step computes at most.",
              .target = &c.engine.max_num_batched_tokens,
              .min = 16,
              .max = 65536});
  schema.Add({.name = "max-waiting-requests",
              .help = "Requests that wait for a place in the batch; more are refused.",
              .target = &c.engine.max_waiting_requests,
              .min = 1,
              .max = 1 << 20});
  schema.Add({.name = "max-choices",
              .help = "Choices (n) that one request may ask for; more are refused.",
              .target = &c.engine.max_choices,
              .min = 1,
              .max = kMaxChoices});
  schema.Add({.name = "scheduling-policy",
              .help = "fcfs serves requests as they come, priority the lower number first; either "
                      "way tenants get equal shares.",
              .target = config::OneOf(
                  &c.engine.scheduling_policy,
                  {{"fcfs", SchedulingPolicy::kFcfs}, {"priority", SchedulingPolicy::kPriority}})});
  schema.Add({.name = "max-step-time-ms",
              .help = "Longest step that prefill may make: the bound on the gap between two tokens "
                      "of a stream; 0 is none.",
              .target = &c.max_step_time_ms,
              .min = -1,
              .max = 60'000,
              .default_text = "200 on a CPU, 50 on a GPU"});
  schema.Add({.name = "block-size",
              .help = "Tokens per page of the KV cache: 16, 32 or 64.",
              .target = &c.block_size,
              .min = 0,
              .max = 64,
              .default_text = "16 on a CPU, 64 on a GPU"});
  schema.Add({.name = "kv-cache-memory-bytes",
              .help = "Memory for keys and values.",
              .target = &c.kv_cache_memory,
              .min = 0,
              .max = static_cast<double>(int64_t{1} << 50),
              .default_text = "what the batch needs, at most half of what weights and workspace "
                              "leave, on GPUs all of it"});
  schema.Add({.name = "max-router-memory-bytes",
              .help =
                  "Memory that all routers together may make the worker hold: frames that wait, "
                  "words that they do not read, connections. One connection may hold half of "
                  "it; more is refused.",
              .target = &c.router_memory,
              .min = 0,
              .max = static_cast<double>(int64_t{1} << 50),
              .default_text = "a quarter of what the memory plan leaves, at least 128MiB"});
  schema.Add({.name = "enable-prefix-caching",
              .help = "Keep what has been computed and share it between requests that begin alike.",
              .target = &c.engine.prefix_caching});
  schema.Add({.name = "speculative-config",
              .help = "Draft tokens ahead and verify several in one step, as JSON: method (ngram, "
                      "draft_model, layer_skip, medusa, eagle3 or mtp), num_speculative_tokens, "
                      "and the method's own keys; answers stay the same.",
              .target = &c.speculative_config,
              .value_name = "JSON",
              .default_text = "nothing is drafted"});
}

void AddDeviceFlags(config::Schema& schema, WorkerConfig& c) {
  schema.Group("Device");
  schema.Add({.name = "device",
              .help =
                  "Where to compute: auto, cpu, cuda, or cuda: with the indices or UUIDs of its "
                  "devices parted by commas, one for each rank.",
              .target = &c.device,
              .value_name = "DEVICE"});
  schema.Add({.name = "cuda-plugin",
              .help = "libquire_cuda.so of this build, or the folder that holds it.",
              .target = &c.gpu.plugin,
              .value_name = "PATH",
              .default_text = "beside quire-worker, or in ../lib"});
  schema.Add({.name = "nccl-library",
              .help = "libnccl.so.2, or the folder that holds it; several ranks on GPUs need it.",
              .target = &c.gpu.nccl,
              .value_name = "PATH",
              .default_text = "beside quire-worker, in Python's wheels, in the toolkit, or where "
                              "the loader looks"});
  schema.Add({.name = "batch-invariant",
              .help =
                  "Tokens never depend on what else is computed. Without it a GPU multiplies by "
                  "cuBLASLt where that is faster, and its tokens may differ from one answer to "
                  "the next; a CPU computes as before.",
              .target = &c.gpu.batch_invariant});
  schema.Add({.name = "cublaslt-library",
              .help = "libcublasLt.so.13, or the folder that holds it; used with "
                      "--no-batch-invariant alone.",
              .target = &c.gpu.cublaslt,
              .value_name = "PATH",
              .default_text = "where NCCL is looked for"});
}

void AddComputeFlags(config::Schema& schema, WorkerConfig& c) {
  schema.Add({.name = "threads",
              .help = "Threads that compute.",
              .target = &c.cpu.threads,
              .min = 0,
              .max = 1024,
              .default_text = "CPU quota or affinity, divided by the workers on this host"});
  schema.Add({.name = "cpu-isa",
              .help = "Instruction set to use; auto takes the best that this CPU has.",
              .target = &c.cpu.isa,
              .value_name = "NAME",
              .choices = {"auto", "reference", "avx2", "avxvnni", "avx512", "avx512vnni",
                          "avx512bf16", "amx"}});
  schema.Add(
      {.name = "numa",
       .help = "On a host with several memory nodes, keep each thread on one node, and weights in "
               "the memory of the threads that multiply them.",
       .target = &c.cpu.numa});
  schema.Add({.name = "activation-dtype",
              .help = "Type that activations are multiplied in: auto is int8 for the formats of "
                      "GGUF whose error has passed its gate, and float32 for all else. w8a8 "
                      "rounds them as a quantised checkpoint asks, which float32 does not, and "
                      "needs one that does ask. A GPU has auto, which is 16-bit floats, and w8a8. "
                      "Another type is another numerics class.",
              .target = &c.cpu.activation_dtype,
              .choices = {"auto", "float32", "bfloat16", "int8", "w8a8"}});
  schema.Add({.name = "kv-cache-dtype",
              .help =
                  "Type of the cached keys and values; auto is float32 on the CPU, float16 there "
                  "beside int8 activations, and bfloat16 on a GPU, which has no float32. fp8 "
                  "(e4m3, a scale for each token and head) takes "
                  "a quarter of float32's memory. Another type is another numerics class.",
              .target = &c.kv_cache_dtype,
              .choices = {"auto", "float32", "bfloat16", "float16", "fp8"}});
  schema.Add({.name = "dequantize-weights",
              .help = "On a GPU: expand quantised weights to 16 bits when they are loaded, in two "
                      "to four times the memory, with the same results; otherwise they stay as "
                      "they are.",
              .target = &c.dequantize_weights});
}

void AddRankFlags(config::Schema& schema, WorkerConfig& c) {
  schema.Add({.name = "tensor-parallel-size",
              .help = "Ranks that share the model: query heads must divide among them, and heads "
                      "of keys and values among them or they among those.",
              .target = &c.tensor_parallel_size,
              .also = {&c.gpu.ranks},
              .min = 1,
              .max = kernels::kMaxRanks});
  schema.Add({.name = "enable-expert-parallel",
              .help = "Ranks divide the experts of a mixture among them, instead of the width of "
                      "each expert. Needed where the width of quantised experts has too few "
                      "blocks for all ranks; faster where its blocks do not divide evenly. "
                      "Another numerics class.",
              .target = &c.enable_expert_parallel});
  schema.Add({.name = "rank-backend",
              .help = "What a rank on the CPU is: a thread of the worker, or a process of its own, "
                      "whose death costs no more than a restart of the ranks.",
              .target = &c.rank_backend,
              .choices = {"thread", "process"}});
  schema.Add({.name = "rank-timeout",
              .help = "Time in which ranks must have ended a step, or the limit of that step if it "
                      "is longer; beyond it they are lost and started again.",
              .target = config::InMicros(&c.ranks.step_timeout_us),
              .min = 100,
              .max = 3600e3});
}

void AddHostFlags(config::Schema& schema, WorkerConfig& c) {
  schema.Add({.name = "max-memory",
              .help = "Memory of the machine that the worker plans for, at most: quire serve deals "
                      "it out among models.",
              .target = &c.max_memory,
              .min = 0,
              .max = static_cast<double>(int64_t{1} << 50),
              .default_text = "what this machine offers"});
  schema.Add({.name = "workers-on-host",
              .help = "Workers that share this machine's threads and memory.",
              .target = &c.workers_on_host,
              .min = 1,
              .max = 1024});
}

void AddPlanFlags(config::Schema& schema, WorkerConfig& c) {
  schema.Group("Plan");
  schema.Add({.name = "plan",
              .help = "Tells as one line of JSON how memory would be dealt, what fits and how fast "
                      "memory lets it decode, and leaves without loading anything.",
              .target = &c.plan});
  schema.Add({.name = "plan-memory",
              .help = "With --plan: memory of the machine that is planned for.",
              .target = &c.plan_memory,
              .min = 0,
              .max = static_cast<double>(int64_t{1} << 50),
              .default_text = "what this machine offers"});
  schema.Add({.name = "plan-bandwidth",
              .help = "With --plan: bytes that that machine reads from memory in a second.",
              .target = &c.plan_bandwidth,
              .min = 0,
              .max = static_cast<double>(int64_t{1} << 50),
              .default_text = "measured here"});
}

}  // namespace

int64_t StepTimeMillis(const WorkerConfig& config, bool on_gpu) {
  constexpr int64_t kCpuMillis = 200;
  constexpr int64_t kGpuMillis = 50;
  if (config.max_step_time_ms >= 0) return config.max_step_time_ms;
  return on_gpu ? kGpuMillis : kCpuMillis;
}

bool AsksForGpu(const WorkerConfig& config) {
  if (FindLinkedDevice(config.device) != nullptr) return true;
  const absl::StatusOr<DeviceRequest> device = ParseDevice(config.device);
  return device.ok() && device->kind == DeviceRequest::Kind::kCuda;
}

bool IsBatchInvariant(const WorkerConfig& config) {
  return config.gpu.batch_invariant || !AsksForGpu(config);
}

int32_t BlockSizeOf(const WorkerConfig& config) {
  constexpr int32_t kCpuTokens = 16;
  constexpr int32_t kGpuTokens = 64;
  if (config.block_size != 0) return config.block_size;
  return AsksForGpu(config) ? kGpuTokens : kCpuTokens;
}

config::Schema MakeWorkerSchema(WorkerConfig& config) {
  config::Schema schema("quire-worker",
                        "Owns a model: computes what routers send to it, step by step.");
  AddModelFlags(schema, config);
  AddBatchFlags(schema, config);
  AddAdapterFlags(schema, config);
  AddDeviceFlags(schema, config);
  AddComputeFlags(schema, config);
  AddRankFlags(schema, config);
  AddHostFlags(schema, config);
  AddConstraintFlags(schema, config);
  AddNetworkFlags(schema, config);
  AddPlanFlags(schema, config);
  return schema;
}

namespace {

absl::Status CheckDevice(const WorkerConfig& c) {
  if (c.enable_expert_parallel && c.tensor_parallel_size == 1) {
    return InvalidArgument(
        "--enable-expert-parallel: divides experts among ranks, and --tensor-parallel-size is 1; "
        "set that above 1, or leave this out");
  }
  if (FindLinkedDevice(c.device) == nullptr) {
    const absl::StatusOr<DeviceRequest> device = ParseDevice(c.device);
    if (!device.ok()) return device.status();
    const size_t named = device->names.size();
    if (named != 0 && named != static_cast<size_t>(c.tensor_parallel_size)) {
      return InvalidArgument("--device: names " + std::to_string(named) + " devices for " +
                             std::to_string(c.tensor_parallel_size) +
                             " ranks; name as many as --tensor-parallel-size says");
    }
  }
  if (AsksForGpu(c) && c.kv_cache_dtype == "float32") {
    return InvalidArgument(
        "--kv-cache-dtype: a GPU keeps keys and values in bfloat16, float16 or fp8, is 'float32'; "
        "leave it out, or set --device cpu");
  }
  if (AsksForGpu(c) && (c.dtype == "float32" || c.dtype == "float")) {
    return InvalidArgument("--dtype: a GPU keeps weights in bfloat16 or float16, is '" + c.dtype +
                           "'; leave it out, or set --device cpu");
  }
  if (AsksForGpu(c) && c.cpu.activation_dtype != "auto" && c.cpu.activation_dtype != "w8a8") {
    return InvalidArgument(
        "--activation-dtype: a GPU multiplies 16-bit floats (auto), or codes where a checkpoint "
        "asks "
        "for that (w8a8), is '" +
        c.cpu.activation_dtype + "'; leave it out, or set --device cpu");
  }
  if (c.dequantize_weights && !AsksForGpu(c)) {
    return InvalidArgument(
        "--dequantize-weights: quantised weights stay as they are on the CPU; "
        "leave it out, or set --device cuda");
  }
  return absl::OkStatus();
}

absl::Status CheckRouterNames(const std::vector<std::string>& names) {
  if (names.empty()) return InvalidArgument("--tls-router-name: is empty; give quire-router");
  for (const std::string& name : names) {
    if (name.empty() || name.size() > kMaxRouterNameBytes ||
        name.find_first_of("* \t") != std::string::npos) {
      return InvalidArgument("--tls-router-name: must be a name of 1 to " +
                             std::to_string(kMaxRouterNameBytes) +
                             " bytes without * and spaces, as in quire-router, is '" + name + "'");
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status CheckWorkerConfig(const WorkerConfig& c) {
  if (c.model.empty()) {
    return InvalidArgument(
        "--model is missing; give a Hugging Face folder, a GGUF file, or a name as hf:ORG/REPO");
  }
  if (!c.plan && (c.plan_memory.value > 0 || c.plan_bandwidth.value > 0)) {
    return InvalidArgument("--plan-memory, --plan-bandwidth: go with --plan, which is missing");
  }
  QUIRE_RETURN_IF_ERROR(CheckDevice(c));
  QUIRE_RETURN_IF_ERROR(CheckAdapterFlags(c));
  if (c.block_size != 0 && c.block_size != 16 && c.block_size != 32 && c.block_size != 64) {
    return InvalidArgument("--block-size: must be 16, 32 or 64, is " +
                           std::to_string(c.block_size));
  }
  if (c.drain_hard_limit.milliseconds >= 0 &&
      c.drain_hard_limit.milliseconds < c.drain_timeout.milliseconds) {
    return InvalidArgument(
        "--drain-hard-limit: must not be shorter than --drain-timeout, which is " +
        std::to_string(c.drain_timeout.milliseconds) + " ms");
  }
  if (c.max_model_len == 1) return InvalidArgument("--max-model-len: must be at least 2, is 1");
  for (const std::string& name : c.served_model_names) {
    if (name.empty() || name.size() > 256) {
      return InvalidArgument("--served-model-name: must have 1 to 256 bytes");
    }
  }
  const absl::StatusOr<HostPort> listen = ParseHostPort(c.listen);
  if (!listen.ok()) return Annotate(listen.status(), "--listen");
  if (c.worker_id.size() > kMaxWorkerIdBytes ||
      std::any_of(c.worker_id.begin(), c.worker_id.end(),
                  [](char c) { return c <= ' ' || c > '~'; })) {
    return InvalidArgument("--worker-id: must be at most " + std::to_string(kMaxWorkerIdBytes) +
                           " printable ASCII characters without spaces, such as rack3-gpu0");
  }
  const int tls_files = !c.tls_cert_file.empty() + !c.tls_key_file.empty() + !c.tls_ca_file.empty();
  if (tls_files != 0 && tls_files != 3) {
    return InvalidArgument(
        "--tls-cert-file, --tls-key-file, --tls-ca-file: routers and workers show each other "
        "certificates, so all three are needed");
  }
  QUIRE_RETURN_IF_ERROR(CheckRouterNames(c.tls_router_names));
  QUIRE_RETURN_IF_ERROR(
      Annotate(ParseSpeculation(c.speculative_config).status(), "--speculative-config"));
  if (!IsLoopback(listen->host) && !c.insecure && tls_files == 0) {
    return InvalidArgument("--listen: " + listen->host +
                           " is not loopback and TLS is not configured; use 127.0.0.1:" +
                           std::to_string(listen->port) +
                           ", give --tls-cert-file, --tls-key-file and --tls-ca-file, or add "
                           "--insecure");
  }
  return absl::OkStatus();
}

std::string ModelBaseName(std::string_view path) {
  while (path.size() > 1 && path.back() == '/') path.remove_suffix(1);
  const size_t slash = path.rfind('/');
  if (slash != std::string_view::npos) path.remove_prefix(slash + 1);
  if (path.ends_with(".gguf")) path.remove_suffix(5);
  return std::string(path.empty() || path == "." || path == ".." ? "model" : path);
}

}  // namespace quire
