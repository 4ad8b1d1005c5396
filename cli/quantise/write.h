// Writes the quantised copy of a model: streaming, by several threads, in little memory.
//
// Blocking; threads of its own that live within the call. At most kPieceBytes of floats and their
// codes are held for each thread.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "cli/quantise/layout.h"
#include "common/status.h"

namespace quire::cli {

// What a matrix lost: the root of the mean square of the differences, over that of its values.
struct TensorLoss {
  const QuantisedTensor* tensor = nullptr;
  double error = 0.0;
};

struct QuantiseOptions {
  std::string folder;
  int threads = 1;
  const std::atomic<bool>* interrupted = nullptr;  // or null
  // Bytes of weights that have been read, and their sum; called by one thread at a time.
  std::function<void(int64_t, int64_t)> progress;
};

// The loss of each matrix that was not copied, in the order of the model's tensors. Errors as for
// output_folder.h; INVALID_ARGUMENT names the tensor with a value that is no finite number, or too
// large for the format. An error leaves nothing behind.
absl::StatusOr<std::vector<TensorLoss>> WriteQuantised(const load::ModelFiles& files,
                                                       const QuantisedModel& model,
                                                       const QuantiseOptions& options);

}  // namespace quire::cli
