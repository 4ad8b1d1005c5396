// What a loaded worker says of itself when a router attaches.
//
// Pure.
#pragma once

#include <cstdint>
#include <string>

#include "common/wire/hello.h"
#include "kernels/backend.h"
#include "worker/adapters/adapter_table.h"
#include "worker/config.h"
#include "worker/model/model.h"

namespace quire {

struct HelloFacts {
  const WorkerConfig& config;
  const model::Model& model;
  const kernels::KvLayout& kv;
  const AdapterTable& adapters;
  int64_t page_count = 0;
  int32_t max_model_len = 0;
  std::string numerics_id;
};

// What people ask of a model: supervisors read it in the line that says a worker is ready.
struct ModelMakeup {
  std::string format;  // "gguf" or "safetensors"
  std::string family;
  std::string quantisation;  // of most of its weights: "Q4_K", "BF16", …
  int64_t parameters = 0;
};

// Of a model that is whole: before its program is cut for ranks.
// `rounded`: Backend::RoundedActivations.
ModelMakeup MakeupOf(const model::Model& model, const std::string& rounded);

// Without features, epoch and worker_id.
WorkerHello MakeWorkerHello(const HelloFacts& facts);

}  // namespace quire
