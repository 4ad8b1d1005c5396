// The library that stands in for NCCL, opened as the real one is, and its controls.
//
// Owned by one test; its orders are for the whole process.
#pragma once

#include <memory>
#include <string>

#include "kernels/cuda/nccl/nccl_library.h"
#include "tests/kernels/cuda/nccl/fake_nccl.h"

namespace quire::kernels::cuda::test {

class FakeNcclFile {
 public:
  // Why it cannot be opened; empty: it is, with no orders.
  std::string Open() {
    LibraryPlaces places;
    places.named = std::string(QUIRE_FAKE_NCCL_FOLDER) + "/good";
    std::string error;
    library_ = nccl::Library::Open(places, error);
    if (library_ == nullptr) return error;
    // The same file is the same library: its controls are found by opening it once more.
    file_ = OpenLibraryFile(library_->path(), error);
    if (file_ == nullptr) return error;
    Order({});
    return {};
  }
  void Order(const FakeNcclOrders& orders) {
    reinterpret_cast<FakeNcclSet>(file_->Symbol("fake_nccl_set"))(&orders);
  }
  FakeNcclCounts Counts() const {
    FakeNcclCounts counts;
    reinterpret_cast<FakeNcclRead>(file_->Symbol("fake_nccl_read"))(&counts);
    return counts;
  }
  const std::shared_ptr<const nccl::Library>& library() const { return library_; }

 private:
  std::shared_ptr<const nccl::Library> library_;
  std::unique_ptr<SharedLibrary> file_;
};

}  // namespace quire::kernels::cuda::test
