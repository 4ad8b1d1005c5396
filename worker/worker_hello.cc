#include "worker/worker_hello.h"

#include <algorithm>
#include <map>
#include <string_view>

#include "common/block_hash.h"
#include "common/wire/values.h"

namespace quire {
namespace {

// 64 hexadecimal digits as 32 bytes.
std::string BytesOfHex(std::string_view hex) {
  std::string bytes;
  for (size_t i = 0; i + 1 < hex.size(); i += 2) {
    bytes += static_cast<char>(std::stoi(std::string(hex.substr(i, 2)), nullptr, 16));
  }
  return bytes;
}

WorkerLimits LimitsOf(const HelloFacts& facts) {
  const EngineOptions& engine = facts.config.engine;
  WorkerLimits limits;
  limits.max_model_len = static_cast<uint32_t>(facts.max_model_len);
  limits.max_num_seqs = static_cast<uint32_t>(engine.max_num_seqs);
  limits.max_waiting_requests = static_cast<uint32_t>(engine.max_waiting_requests);
  limits.max_choices = static_cast<uint32_t>(engine.max_choices);
  limits.max_logprobs = kMaxLogprobs;
  limits.max_stop_token_ids = kMaxStopTokenIds;
  limits.max_logit_bias = kMaxLogitBias;
  limits.max_frame_bytes = kMaxFrameBytes;
  return limits;
}

}  // namespace

ModelMakeup MakeupOf(const model::Model& model, const std::string& rounded) {
  ModelMakeup makeup;
  makeup.format = model.files->is_gguf() ? "gguf" : "safetensors";
  makeup.family = model.program.family;
  std::map<kernels::DType, int64_t> elements;
  for (const kernels::Weight& weight : model.program.weights) {
    for (const kernels::WeightSource& part : weight.parts) {
      makeup.parameters += part.rows * part.cols;
      elements[part.type] += part.rows * part.cols;
    }
  }
  if (const load::Quantisation* quantisation = model.files->quantisation()) {
    makeup.quantisation = quantisation->Description(rounded);
    return makeup;
  }
  const auto most =
      std::max_element(elements.begin(), elements.end(),
                       [](const auto& a, const auto& b) { return a.second < b.second; });
  if (most != elements.end()) makeup.quantisation = kernels::DTypeName(most->first);
  return makeup;
}

WorkerHello MakeWorkerHello(const HelloFacts& facts) {
  WorkerHello hello;
  hello.model_id = facts.model.model_id;
  hello.numerics_id = facts.numerics_id;
  for (const kernels::KvKind& kind : facts.kv.kinds) {
    hello.cache_groups.push_back({kind.window == 0 ? "full" : "sliding",
                                  static_cast<uint32_t>(kind.groups),
                                  static_cast<uint32_t>(kind.window)});
  }
  hello.block_size = static_cast<uint32_t>(BlockSizeOf(facts.config));
  hello.hash_scheme = std::string(kHashScheme);
  hello.capacity_blocks = static_cast<uint64_t>(facts.page_count);
  hello.limits = LimitsOf(facts);
  hello.text_bundle_sha256 = BytesOfHex(facts.model.bundle_digest);
  hello.served_names = facts.config.served_model_names;
  if (hello.served_names.empty()) hello.served_names.push_back(ModelBaseName(facts.config.model));
  hello.vocab_size = static_cast<uint32_t>(facts.model.program.vocab_size);
  hello.prefix_caching = facts.config.engine.prefix_caching;
  for (const AdapterInfo& adapter : facts.adapters.List()) {
    hello.adapters.push_back({adapter.name, adapter.digest, hello.served_names.front(),
                              static_cast<uint32_t>(adapter.rank)});
  }
  return hello;
}

}  // namespace quire
