// NCCL, opened when a worker has more than one GPU rank.
//
// Immutable after Open; the ranks of a process share its ownership.
#pragma once

#include <memory>
#include <string>

#include "kernels/cuda/nccl/nccl_abi.h"
#include "kernels/libraries/shared_library.h"

namespace quire::kernels::cuda::nccl {

class Library {
 public:
  // Null and one line: what was found where, what is needed, and what to set. A library without one
  // of the functions, or older than kNcclHeaderVersion, is refused.
  static std::unique_ptr<Library> Open(const LibraryPlaces& places, std::string& error);

  const Functions& functions() const { return functions_; }
  const std::string& path() const { return file_->path(); }
  int version() const { return version_; }
  // "remote process exited or there was a network error (6)", in one line.
  std::string ResultText(Result result) const;

 private:
  Library() = default;
  std::unique_ptr<SharedLibrary> file_;
  Functions functions_;
  int version_ = 0;
};

// 22809 → "2.28.9".
std::string VersionText(int version);

}  // namespace quire::kernels::cuda::nccl
