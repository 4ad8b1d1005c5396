#include "kernels/cuda/cublaslt/cublaslt_library.h"

#include <utility>

namespace quire::kernels::cuda::cublaslt {
namespace {

constexpr const char* kLibraryName = "libcublasLt.so.13";
constexpr size_t kMajor = 10'000;

// What the library lacks, in a line.
std::string Resolve(const SharedLibrary& file, Functions& f) {
  Symbols symbols(file);
  symbols.Need("cublasLtGetVersion", f.version);
  symbols.Need("cublasLtGetStatusString", f.status_string);
  symbols.Need("cublasLtCreate", f.create);
  symbols.Need("cublasLtDestroy", f.destroy);
  symbols.Need("cublasLtMatmulDescCreate", f.desc_create);
  symbols.Need("cublasLtMatmulDescDestroy", f.desc_destroy);
  symbols.Need("cublasLtMatmulDescSetAttribute", f.desc_set);
  symbols.Need("cublasLtMatrixLayoutCreate", f.layout_create);
  symbols.Need("cublasLtMatrixLayoutDestroy", f.layout_destroy);
  symbols.Need("cublasLtMatmulPreferenceCreate", f.preference_create);
  symbols.Need("cublasLtMatmulPreferenceDestroy", f.preference_destroy);
  symbols.Need("cublasLtMatmulPreferenceSetAttribute", f.preference_set);
  symbols.Need("cublasLtMatmulAlgoGetHeuristic", f.heuristic);
  symbols.Need("cublasLtMatmul", f.matmul);
  return symbols.Missing();
}

}  // namespace

std::unique_ptr<Library> Library::Open(const LibraryPlaces& places, std::string& error) {
  std::unique_ptr<Library> library(new Library);
  const auto check = [&library](const SharedLibrary& file) -> std::string {
    if (std::string missing = Resolve(file, library->functions_); !missing.empty()) return missing;
    const size_t version = library->functions_.version();
    if (version / kMajor == kHeaderVersion / kMajor) return {};
    return "it is cuBLASLt " + VersionText(version);
  };
  library->file_ = FindLibrary(kLibraryName, places, check, error);
  return library->file_ == nullptr ? nullptr : std::move(library);
}

std::string VersionText(size_t version) {
  return std::to_string(version / kMajor) + "." + std::to_string(version % kMajor / 100) + "." +
         std::to_string(version % 100);
}

}  // namespace quire::kernels::cuda::cublaslt
