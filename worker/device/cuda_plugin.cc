#include "worker/device/cuda_plugin.h"

#include <cstring>

#include "quire_build_id.h"

namespace quire {
namespace {

using kernels::SharedLibrary;

constexpr size_t kMaxErrorBytes = 512;

const QuireCudaTable* TableOf(const SharedLibrary& file) {
  const auto function =
      reinterpret_cast<QuireCudaTableFunction>(file.Symbol(kernels::cuda::kPluginSymbol));
  return function == nullptr ? nullptr : function();
}

std::string Check(const SharedLibrary& file) {
  const QuireCudaTable* table = TableOf(file);
  if (table == nullptr) return std::string("it has no ") + kernels::cuda::kPluginSymbol;
  if (table->version != kernels::cuda::kQuireCudaTableVersion) {
    return "its table is of version " + std::to_string(table->version) + ", not " +
           std::to_string(kernels::cuda::kQuireCudaTableVersion);
  }
  if (std::strcmp(table->build_id, CudaBuildId()) != 0) {
    return "it is of build " + std::string(table->build_id).substr(0, 12) + ", this worker of " +
           std::string(CudaBuildId()).substr(0, 12);
  }
  return {};
}

}  // namespace

const char* CudaBuildId() { return kQuireBuildId; }

absl::StatusOr<std::unique_ptr<CudaPlugin>> CudaPlugin::Open(const kernels::LibraryPlaces& places) {
  std::unique_ptr<CudaPlugin> plugin(new CudaPlugin);
  std::string error;
  plugin->file_ = kernels::FindLibrary(kernels::cuda::kPluginName, places, Check, error);
  if (plugin->file_ == nullptr) {
    return absl::UnavailableError(
        AbslView("--device: cuda needs the plugin of this build: " + error +
                 "; put it beside quire-worker, name it with --cuda-plugin, or set --device cpu"));
  }
  plugin->table_ = TableOf(*plugin->file_);
  return plugin;
}

absl::StatusOr<CudaPlugin::BackendHandle> CudaPlugin::OpenBackend(
    const QuireCudaRequest& request) const {
  void* backend = nullptr;
  char text[kMaxErrorBytes] = {};
  const int32_t code = table_->open(&request, &backend, text, sizeof(text));
  if (code == kQuireCudaGood && backend != nullptr) {
    return BackendHandle(static_cast<kernels::Backend*>(backend), Closer{table_});
  }
  return absl::UnavailableError(AbslView("--device: " + std::string(request.description) +
                                         " cannot be opened (code " + std::to_string(code) +
                                         "): " + text));
}

}  // namespace quire
