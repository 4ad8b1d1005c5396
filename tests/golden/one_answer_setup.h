// On what the test of one answer runs: a binary links the setup of its device.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "kernels/backend.h"

namespace quire::golden {

struct OneAnswerSetup {
  std::vector<std::string> families;  // fixtures of tests/golden/models
  uint64_t requests = 100;
  uint64_t seed = 23;   // of the requests
  int least_found = 5;  // requests that the prefix cache had all, some and nothing of, at least
  bool resume_everywhere = true;  // from every position of every answer; else from one of each
};
OneAnswerSetup MakeOneAnswerSetup();

// `threads` where the device computes with threads of the host.
std::unique_ptr<kernels::Backend> MakeOneAnswerBackend(int threads);

}  // namespace quire::golden
