#include "kernels/cuda/nccl/nccl_library.h"

#include <algorithm>

namespace quire::kernels::cuda::nccl {
namespace {

constexpr const char* kLibraryName = "libnccl.so.2";

// What the library lacks, in a line.
std::string Resolve(const SharedLibrary& file, Functions& functions) {
  Symbols symbols(file);
  symbols.Need("ncclGetVersion", functions.get_version);
  symbols.Need("ncclGetUniqueId", functions.get_unique_id);
  symbols.Need("ncclCommInitRankConfig", functions.comm_init_rank_config);
  symbols.Need("ncclCommGetAsyncError", functions.comm_get_async_error);
  symbols.Need("ncclCommAbort", functions.comm_abort);
  symbols.Need("ncclCommFinalize", functions.comm_finalize);
  symbols.Need("ncclCommDestroy", functions.comm_destroy);
  symbols.Need("ncclAllGather", functions.all_gather);
  symbols.Need("ncclBroadcast", functions.broadcast);
  symbols.Need("ncclGetErrorString", functions.get_error_string);
  symbols.Need("ncclGetLastError", functions.get_last_error);
  return symbols.Missing();
}

}  // namespace

std::unique_ptr<Library> Library::Open(const LibraryPlaces& places, std::string& error) {
  std::unique_ptr<Library> library(new Library);
  const auto check = [&library](const SharedLibrary& file) -> std::string {
    if (std::string missing = Resolve(file, library->functions_); !missing.empty()) return missing;
    const int code = library->functions_.get_version(&library->version_);
    if (code != kSuccess) return "it does not tell its version";
    if (library->version_ >= kNcclHeaderVersion) return {};
    return "it is NCCL " + VersionText(library->version_);
  };
  library->file_ = FindLibrary(kLibraryName, places, check, error);
  if (library->file_ == nullptr) {
    error = "more than one GPU rank needs NCCL " + VersionText(kNcclHeaderVersion) +
            " or newer: " + error +
            "; name its file with --nccl-library, or set --tensor-parallel-size 1";
    return nullptr;
  }
  return library;
}

std::string Library::ResultText(Result result) const {
  const char* said = functions_.get_error_string(result);
  std::string text = std::string(said == nullptr ? "unknown" : said);
  std::replace(text.begin(), text.end(), '\n', ' ');
  return text + " (" + std::to_string(result) + ")";
}

std::string VersionText(int version) {
  // Up to 2.8 a thousand stood between major and minor.
  const int major = version < 10'000 ? version / 1000 : version / 10'000;
  const int minor = version < 10'000 ? version % 1000 / 100 : version % 10'000 / 100;
  return std::to_string(major) + "." + std::to_string(minor) + "." + std::to_string(version % 100);
}

}  // namespace quire::kernels::cuda::nccl
