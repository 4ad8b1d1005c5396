// cuBLASLt, opened where a worker may give up batch invariance for speed.
//
// Immutable after Open; ownership is shared by all users.
#pragma once

#include <memory>
#include <string>

#include "kernels/cuda/cublaslt/cublaslt_abi.h"
#include "kernels/libraries/shared_library.h"

namespace quire::kernels::cuda::cublaslt {

class Library {
 public:
  // Null and one line: what was found where, and what is needed. A library without one of the
  // functions, or of another major version than the header's, is refused.
  static std::unique_ptr<Library> Open(const LibraryPlaces& places, std::string& error);

  const Functions& functions() const { return functions_; }
  const std::string& path() const { return file_->path(); }

 private:
  Library() = default;
  std::unique_ptr<SharedLibrary> file_;
  Functions functions_;
};

// 130100 → "13.1.0".
std::string VersionText(size_t version);

}  // namespace quire::kernels::cuda::cublaslt
