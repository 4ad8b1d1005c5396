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

// Without features, epoch and worker_id.
WorkerHello MakeWorkerHello(const HelloFacts& facts);

}  // namespace quire
