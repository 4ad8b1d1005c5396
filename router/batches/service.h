// What the routes of files and batches use.
//
// Owner: main; outlives every call. Event loop only, except for the store.
#pragma once

#include "common/runtime/runtime.h"
#include "router/batches/runner.h"
#include "router/batches/store.h"

namespace quire::batches {

struct Service {
  Store& store;
  Runner& runner;
  Background& disk;  // of clients, who take turns
  BatchMetrics& metrics;
};

}  // namespace quire::batches
