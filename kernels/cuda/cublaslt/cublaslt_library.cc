#include "kernels/cuda/cublaslt/cublaslt_library.h"

#include <type_traits>
#include <utility>

namespace quire::kernels::cuda::cublaslt {
namespace {

constexpr const char* kLibraryName = "libcublasLt.so.13";
constexpr size_t kMajor = 10'000;

// The first function that the library lacks; null: it has all.
const char* Resolve(const SharedLibrary& file, Functions& f) {
  const char* missing = nullptr;
  const auto need = [&](const char* name, auto& function) {
    function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(file.Symbol(name));
    if (function == nullptr && missing == nullptr) missing = name;
  };
  need("cublasLtGetVersion", f.version);
  need("cublasLtGetStatusString", f.status_string);
  need("cublasLtCreate", f.create);
  need("cublasLtDestroy", f.destroy);
  need("cublasLtMatmulDescCreate", f.desc_create);
  need("cublasLtMatmulDescDestroy", f.desc_destroy);
  need("cublasLtMatmulDescSetAttribute", f.desc_set);
  need("cublasLtMatrixLayoutCreate", f.layout_create);
  need("cublasLtMatrixLayoutDestroy", f.layout_destroy);
  need("cublasLtMatmulPreferenceCreate", f.preference_create);
  need("cublasLtMatmulPreferenceDestroy", f.preference_destroy);
  need("cublasLtMatmulPreferenceSetAttribute", f.preference_set);
  need("cublasLtMatmulAlgoGetHeuristic", f.heuristic);
  need("cublasLtMatmul", f.matmul);
  return missing;
}

std::string Check(const SharedLibrary& file) {
  Functions functions;
  if (const char* missing = Resolve(file, functions); missing != nullptr) {
    return std::string("it has no ") + missing;
  }
  const size_t version = functions.version();
  if (version / kMajor != kHeaderVersion / kMajor) return "it is cuBLASLt " + VersionText(version);
  return {};
}

}  // namespace

std::unique_ptr<Library> Library::Open(const LibraryPlaces& places, std::string& error) {
  std::unique_ptr<SharedLibrary> file = FindLibrary(kLibraryName, places, Check, error);
  if (file == nullptr) return nullptr;
  std::unique_ptr<Library> library(new Library);
  Resolve(*file, library->functions_);
  library->file_ = std::move(file);
  return library;
}

std::string VersionText(size_t version) {
  return std::to_string(version / kMajor) + "." + std::to_string(version % kMajor / 100) + "." +
         std::to_string(version % 100);
}

}  // namespace quire::kernels::cuda::cublaslt
