// The plugin that computes on GPUs: found by the table of places, refused when it does not belong
// to this build.
//
// Any thread; a Backend that it opened belongs to its rank's thread and ends before the plugin.
#pragma once

#include <memory>
#include <string>

#include "common/status.h"
#include "kernels/backend.h"
#include "kernels/cuda/plugin/plugin_table.h"
#include "kernels/libraries/shared_library.h"

namespace quire {

// The identity that the plugin of this build reports; all code in kernels/ is part of it.
const char* CudaBuildId();

class CudaPlugin {
 public:
  // UNAVAILABLE in one line: what was found, what is needed, what to set.
  static absl::StatusOr<std::unique_ptr<CudaPlugin>> Open(const kernels::LibraryPlaces& places);

  const std::string& path() const { return file_->path(); }
  int toolkit_version() const { return table_->toolkit_version; }
  int oldest_major() const { return table_->oldest_major; }

  struct Closer {
    const QuireCudaTable* table;
    void operator()(kernels::Backend* backend) const { table->close(backend); }
  };
  using BackendHandle = std::unique_ptr<kernels::Backend, Closer>;
  // UNAVAILABLE in one line. Texts of the request live until the call returns.
  absl::StatusOr<BackendHandle> OpenBackend(const QuireCudaRequest& request) const;

 private:
  CudaPlugin() = default;
  std::unique_ptr<kernels::SharedLibrary> file_;
  const QuireCudaTable* table_ = nullptr;
};

}  // namespace quire
