#include "kernels/cuda/backend/device_weights.h"

#include <algorithm>
#include <span>

#include "kernels/cuda/backend/expand.h"

namespace quire::kernels::cuda {
namespace {

constexpr int64_t kSlabBytes = 8 << 20;  // of expanded rows on their way to the device

int64_t ElementsOf(const Weight& weight) {
  int64_t elements = 0;
  for (const WeightSource& part : weight.parts) elements += part.rows * part.cols;
  return elements;
}

// Brings the weights of one program to the device, one after another.
class Loader {
 public:
  Loader(const ProgramOptions& options, runtime::Runtime& runtime)
      : options_(options), runtime_(runtime) {}

  runtime::Error Begin() { return runtime_.CreateStream(&stream_); }

  runtime::Error LoadOne(const Weight& weight, const WeightRole& role, const DeviceWeight& to) {
    if (!role.is_matrix) return LoadVector(weight, to);
    int64_t row = 0;  // of the stacked parts
    const int64_t slab = std::max<int64_t>(1, kSlabBytes / (2 * to.cols));
    for (const WeightSource& part : weight.parts) {
      for (int64_t begin = 0; begin < part.rows; begin += slab) {
        const int64_t count = std::min(slab, part.rows - begin);
        slab_.resize(static_cast<size_t>(count * part.cols));
        ExpandRows(part, begin, slab_);
        runtime::Error error = Send(to.data + (row + begin) * to.cols);
        if (!error.empty()) return error;
        Release(part, begin, count);
      }
      row += part.rows;
    }
    slab_.assign(static_cast<size_t>((to.rows - row) * to.cols), 0);
    return Send(to.data + row * to.cols);
  }

 private:
  runtime::Error LoadVector(const Weight& weight, const DeviceWeight& to) {
    slab_.clear();
    for (const WeightSource& part : weight.parts) {
      floats_.resize(static_cast<size_t>(part.cols));
      for (int64_t row = 0; row < part.rows; ++row) {
        ExpandRow(part, row, floats_);
        for (const float value : floats_) slab_.push_back(RoundToBf16(value));
      }
    }
    slab_.resize(static_cast<size_t>(to.cols), 0);
    return Send(to.data);
  }

  // Copies the slab and waits, so that it can be filled again.
  runtime::Error Send(uint16_t* to) {
    if (slab_.empty()) return {};
    runtime::Error error = runtime_.Copy(stream_, to, slab_.data(), 2 * slab_.size());
    if (error.empty()) error = runtime_.Synchronize(stream_);
    return error;
  }

  void Release(const WeightSource& part, int64_t begin, int64_t count) const {
    if (!options_.release_source) return;
    // What lies between the rows of a slice belongs to other ranks: they read it from disk again.
    options_.release_source(part.Row(begin), (count - 1) * part.RowStride() + part.RowBytes());
  }

  const ProgramOptions& options_;
  runtime::Runtime& runtime_;
  runtime::StreamId stream_{};
  std::vector<uint16_t> slab_;
  std::vector<float> floats_;
};

}  // namespace

DeviceWeight PlanWeight(const Weight& weight, const WeightRole& role) {
  const auto whole = [](int64_t n) { return static_cast<int>((n + 7) / 8 * 8); };
  if (!role.used) return {};
  if (!role.is_matrix) return {nullptr, 1, whole(ElementsOf(weight))};
  return {nullptr, whole(weight.rows), static_cast<int>(weight.cols)};
}

int64_t PlanWeightBytes(const StepProgram& program, const DeviceProgram& lowered) {
  int64_t bytes = 0;
  for (size_t id = 0; id < program.weights.size(); ++id) {
    const DeviceWeight shape = PlanWeight(program.weights[id], lowered.weights[id]);
    bytes += 2 * int64_t{shape.rows} * shape.cols;
  }
  return bytes;
}

runtime::Error DeviceWeights::Load(const StepProgram& program, const DeviceProgram& lowered,
                                   const ProgramOptions& options, runtime::Runtime& runtime,
                                   DeviceHeap& heap) {
  Loader loader(options, runtime);
  if (runtime::Error error = loader.Begin(); !error.empty()) return error;
  const auto bytes_of = [](const Weight& weight) {
    int64_t bytes = 0;
    for (const WeightSource& part : weight.parts) bytes += part.Bytes();
    return bytes;
  };
  int64_t total = 0;
  for (const Weight& weight : program.weights) total += bytes_of(weight);
  int64_t done = 0;
  for (size_t id = 0; id < program.weights.size(); ++id) {
    const Weight& weight = program.weights[id];
    DeviceWeight to = PlanWeight(weight, lowered.weights[id]);
    to.data = heap.New<uint16_t>(static_cast<size_t>(to.rows) * static_cast<size_t>(to.cols));
    if (!heap.error().empty()) return weight.name + ": " + heap.error();
    if (to.data != nullptr) {
      if (runtime::Error error = loader.LoadOne(weight, lowered.weights[id], to); !error.empty()) {
        return weight.name + ": " + error;
      }
    }
    weights_.push_back(to);
    done += bytes_of(weight);
    if (options.progress) options.progress(done, total);
  }
  return {};
}

}  // namespace quire::kernels::cuda
