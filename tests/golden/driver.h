// Runs one sequence through a backend by hand: pages, block tables and steps, without engine or
// runner.
//
// Owned by one test. Pages behind a sliding window are given back, filled with NaN and used again,
// so that a kernel that reads them is found out.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "kernels/backend.h"
#include "worker/model/model.h"

namespace quire::golden {

struct DriverOptions {
  std::string isa = "auto";
  std::string activation_dtype = "float32";
  kernels::KvType kv_type = kernels::KvType::kF32;
  int block_size = 16;
  int threads = 2;
  int max_positions = 512;
  bool dequantize_weights = false;  // where the backend has the choice
  bool round_activations = false;   // the same
  // Makes another device's backend, whose pages are those it asks for unless kv_type is another
  // than float32; empty: a CPU's.
  std::function<std::unique_ptr<kernels::Backend>()> make_backend = nullptr;
};

// What one step computed for a wanted token.
struct Row {
  std::vector<float> logits;
  int32_t token = -1;  // the greedy sample
};

class Driver {
 public:
  // Null, and why in `error`, when the host lacks the instruction set.
  static std::unique_ptr<Driver> Make(const model::Model& model, const DriverOptions& options,
                                      std::string& error);

  // Runs `tokens` as the next positions; `wanted` are indices into them whose rows are returned.
  std::vector<Row> Feed(std::span<const int32_t> tokens, std::span<const int32_t> wanted);
  // Begins a new sequence on used, NaN-filled pages.
  void Reset();

 private:
  Driver() = default;
  void PlacePages(int first_position, int count);

  int vocab_size_ = 0;
  std::unique_ptr<kernels::Backend> backend_;
  std::unique_ptr<kernels::LoadedProgram> program_;
  kernels::KvLayout layout_;
  std::vector<std::vector<int32_t>> tables_;  // by group
  std::vector<int32_t> free_pages_;
  int position_ = 0;
};

}  // namespace quire::golden
