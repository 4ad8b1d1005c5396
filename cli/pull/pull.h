// Brings a model to this machine: asks what it is, looks what is here, fetches the rest, checks it,
// and gives it its name.
//
// Blocking, on the calling thread (download.h has threads of its own). Two pulls of one model share
// one: the second waits, and finds it there.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "cli/pull/download.h"
#include "cli/pull/hub.h"
#include "cli/pull/mlflow.h"
#include "cli/pull/oci.h"
#include "cli/pull/s3.h"
#include "cli/pull/source.h"
#include "common/status.h"

namespace quire::pull {

using OnProgress = std::function<void(int64_t here, int64_t total)>;

struct PullOptions {
  HubSettings hub;
  S3Settings s3;
  OciSettings oci;
  MlflowSettings mlflow;
  std::string store;  // the folder of models that come from elsewhere
  std::string authorities = {};
  bool for_client = false;  // somebody else named the model: no redirect to a private address
  int64_t max_bytes = 0;    // of the model; 0: no limit
  Reach reach = {};         // follows from for_client
  int connections = 8;
  double bytes_per_second = 0;                    // 0: no limit
  const std::atomic<bool>* cancelled = nullptr;   // outlives the call
  std::function<void(std::string_view)> on_note;  // a line for people
  OnProgress on_progress;
};

struct Pulled {
  std::string path;  // a folder or a .gguf file
  int64_t bytes = 0;
  FetchTotals totals;
};

// Where models that come from elsewhere than a hub are: XDG_CACHE_HOME/quire/models.
std::string StoreFolder(const config::Environment& environment);

// Where the source is on this machine already; empty: it is not. Asks no server.
std::string PathHere(const Source& source, const PullOptions& options);

// INVALID_ARGUMENT for a local source, RESOURCE_EXHAUSTED past max_bytes; else as Describe,
// ChooseFiles and Fetch say.
absl::StatusOr<Pulled> Pull(const Source& source, const PullOptions& options);

}  // namespace quire::pull
