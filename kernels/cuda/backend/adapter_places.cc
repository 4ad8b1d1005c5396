#include "kernels/cuda/backend/adapter_places.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "kernels/cuda/backend/expand.h"
#include "kernels/expand.h"

namespace quire::kernels::cuda {
namespace {

constexpr size_t kAlignment = 256;

int Whole(int64_t width) { return static_cast<int>((width + 7) / 8 * 8); }

class Planner {
 public:
  explicit Planner(AdapterPlan& plan) : plan_(plan) {}

  void Add(const LoraStep& step, int width) {
    const auto& slices = step.op.slices;
    AdapterPlaces places;
    places.inner = static_cast<int>(slices.size()) * plan_.rank;
    places.width = width;
    places.a = Take(int64_t{places.inner} * width);
    for (int i = 0; i < static_cast<int>(slices.size()); ++i) {
      const LoraOp::Slice& slice = slices[static_cast<size_t>(i)];
      const int rows = Whole(step.widths[static_cast<size_t>(i)]);
      AdapterPlaces::Run* last = places.runs.empty() ? nullptr : &places.runs.back();
      if (slice.column % 8 != 0) {
        Join(places, slice.column + step.widths[static_cast<size_t>(i)]);
      } else if (last != nullptr && last->joined == 1 && last->rows == rows &&
                 slice.column == last->column + last->count * rows) {
        ++last->count;
      } else {
        places.runs.push_back({i, 1, 1, rows, slice.column, 0});
      }
    }
    for (AdapterPlaces::Run& run : places.runs) {
      run.b = Take(int64_t{run.count} * run.rows * run.joined * plan_.rank);
    }
    plan_.inner = std::max(plan_.inner, places.inner);
    plan_.steps.push_back(std::move(places));
  }

 private:
  // The next slice, which ends at column `end`, into the last matrix.
  static void Join(AdapterPlaces& places, int end) {
    AdapterPlaces::Run* last = &places.runs.back();
    if (last->count > 1) {
      --last->count;
      const int before = last->count;
      places.runs.push_back(
          {last->first + before, 1, 1, last->rows, last->column + before * last->rows, 0});
      last = &places.runs.back();
    }
    ++last->joined;
    last->rows = Whole(end - last->column);
  }

  size_t Take(int64_t numbers) {
    const size_t at = plan_.slot_bytes;
    plan_.slot_bytes +=
        (2 * static_cast<size_t>(numbers) + kAlignment - 1) / kAlignment * kAlignment;
    return at;
  }

  AdapterPlan& plan_;
};

// A matrix in a slot, row by row.
struct Target {
  std::byte* at;
  int64_t stride;
  bool half;
  float scale;
};
void Put(const WeightSource& source, const Target& target) {
  std::vector<float> row(static_cast<size_t>(source.cols));
  std::vector<uint16_t> narrow(row.size());
  for (int64_t r = 0; r < source.rows; ++r) {
    ExpandRow(source, r, row);
    for (size_t i = 0; i < row.size(); ++i) {
      const float x = row[i] * target.scale;
      narrow[i] = target.half ? RoundToF16(x) : RoundToBf16(x);
    }
    std::memcpy(target.at + 2 * r * target.stride, narrow.data(), 2 * narrow.size());
  }
}

}  // namespace

AdapterPlan PlanAdapters(const DeviceProgram& lowered, int max_rank) {
  AdapterPlan plan;
  plan.rank = Whole(max_rank);
  Planner planner(plan);
  for (const DeviceStep& step : lowered.steps) {
    const auto* lora = std::get_if<LoraStep>(&step);
    if (lora == nullptr) continue;
    planner.Add(*lora, lowered.buffers[static_cast<size_t>(lora->op.in)].width);
  }
  return plan;
}

void PackAdapter(const Adapter& adapter, const DeviceProgram& lowered, const AdapterPlan& plan,
                 std::span<std::byte> slot) {
  std::ranges::fill(slot, std::byte{0});
  auto places = plan.steps.begin();
  for (const DeviceStep& step : lowered.steps) {
    const auto* lora = std::get_if<LoraStep>(&step);
    if (lora == nullptr) continue;
    for (const AdapterPlaces::Run& run : places->runs) {
      for (int i = 0; i < run.count * run.joined; ++i) {
        const LoraOp::Slice& slice = lora->op.slices[static_cast<size_t>(run.first + i)];
        const AdapterMatrices& own = adapter.targets[static_cast<size_t>(slice.target)];
        if (own.a.rows == 0) continue;
        const int64_t a = int64_t{run.first + i} * plan.rank * places->width;
        Put(own.a, {slot.data() + places->a + 2 * a, places->width, lora->half, 1.0f});
        const int64_t stride = int64_t{run.joined} * plan.rank;
        const int64_t row = slice.column - run.column;  // of the matrices, one below another
        const int64_t b = row * stride + (run.joined > 1 ? i * plan.rank : 0);
        Put(own.b, {slot.data() + run.b + 2 * b, stride, false, own.scale});
      }
    }
    ++places;
  }
}

}  // namespace quire::kernels::cuda
