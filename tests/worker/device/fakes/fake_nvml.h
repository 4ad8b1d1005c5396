// What the library that stands in for NVML has counted.
//
// Keeps the library open, whose counts begin again at 0 otherwise. One thread.
#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <memory>
#include <string>
#include <thread>

#include "kernels/libraries/shared_library.h"

namespace quire::test {

class FakeNvml {
 public:
  FakeNvml() {
    std::string error;
    file_ =
        kernels::OpenLibraryFile(QUIRE_BINARY_DIR "/tests/fake_cuda/nvml/libnvidia-ml.so.1", error);
    EXPECT_NE(file_, nullptr) << error;
  }

  // "reads": of a device's memory that have begun; "hangs": threads that do not come back.
  int Count(const std::string& what) const {
    return reinterpret_cast<int (*)()>(file_->Symbol(("fake_nvml_" + what).c_str()))();
  }
  void AwaitMore(const std::string& what, int than) const {
    while (Count(what) <= than) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }

 private:
  std::unique_ptr<kernels::SharedLibrary> file_;
};

}  // namespace quire::test
