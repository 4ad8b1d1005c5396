// What rows' adapters add to products: two grouped products, A for every run of rows with one
// adapter and every slice, then B; and activations behind them.
#include <algorithm>
#include <cstdio>
#include <cstdlib>

#include "kernels/cpu/cpu_program.h"
#include "kernels/cpu/cpu_program_share.h"

namespace quire::kernels::cpu {
namespace {

constexpr int kLoraTokens = 512;             // that are taken at a time, with the memory of as many
constexpr int kLeastActivatedFloats = 8192;  // smaller jobs cost less than waking a thread

// Few rows of a run are padded, to less than twice as many.
int64_t TileFloats(int64_t tokens, int64_t k) {
  return 2 * tokens * BufferStride(static_cast<int>(k));
}

}  // namespace

LoraNeeds LoraNeeds::Of(const StepProgram& program, const ProgramOptions& options) {
  LoraNeeds needs;
  if (options.max_loras == 0) return needs;
  const int64_t tokens = std::min(options.max_tokens, kLoraTokens);
  const int64_t rank = BufferStride(options.max_lora_rank);
  for (const Op& op : program.ops) {
    const auto* lora = std::get_if<LoraOp>(&op);
    if (lora == nullptr) continue;
    const auto slices = static_cast<int64_t>(lora->slices.size());
    const int64_t width = program.buffers[lora->in].width;
    needs.inner_floats = std::max(needs.inner_floats, tokens * slices * rank);
    needs.tile_floats =
        std::max({needs.tile_floats, TileFloats(tokens, width), slices * TileFloats(tokens, rank)});
    needs.jobs = std::max(needs.jobs, static_cast<size_t>(options.max_rows * slices));
  }
  return needs;
}

std::shared_ptr<const AdapterWeights> CpuProgram::PackAdapter(const Adapter& adapter) const {
  return cpu::PackAdapter(adapter);
}

void CpuProgram::SetAdapter(int slot, std::shared_ptr<const AdapterWeights> adapter) {
  // Only PackAdapter makes them.
  adapters_[static_cast<size_t>(slot)] =
      std::static_pointer_cast<const PackedAdapter>(std::move(adapter));
}

// Neighbouring rows with one adapter are one run.
void CpuProgram::FindAdapterRuns() {
  adapter_runs_.clear();
  for (const BatchRow& row : step_.batch->rows) {
    if (row.adapter < 0) continue;
    const auto slot = static_cast<size_t>(row.adapter);
    if (slot >= adapters_.size() || adapters_[slot] == nullptr) {
      std::fprintf(stderr, "a row names adapter slot %d, which holds none\n", row.adapter);
      std::abort();
    }
    const PackedAdapter* adapter = adapters_[slot].get();
    if (!adapter_runs_.empty() && adapter_runs_.back().adapter == adapter &&
        adapter_runs_.back().end == row.first_token) {
      adapter_runs_.back().end += row.token_count;
    } else {
      adapter_runs_.push_back({adapter, row.first_token, row.first_token + row.token_count});
    }
  }
}

void CpuProgram::RunOp(const LoraOp& op) {
  if (adapter_runs_.empty()) return;
  for (int begin = 0; begin < step_.tokens; begin += kLoraTokens) {
    RunLoraSlice(op, begin, std::min(begin + kLoraTokens, step_.tokens));
  }
}

void CpuProgram::RunLoraSlice(const LoraOp& op, int begin, int end) {
  const auto slices = static_cast<int64_t>(op.slices.size());
  const int64_t inner_stride = slices * lora_rank_stride_;
  float* const inner = reinterpret_cast<float*>(lora_inner_.data());
  // function(run, rows of it in the slice, slice, its product)
  const auto for_each = [&](auto function) {
    for (const AdapterRun& run : adapter_runs_) {
      const int from = std::max(begin, run.begin);
      const int rows = std::min(end, run.end) - from;
      if (rows <= 0) continue;
      LinearJob job;
      job.rows = rows;
      for (int64_t s = 0; s < slices; ++s) {
        const LoraOp::Slice& slice = op.slices[static_cast<size_t>(s)];
        const auto& product = run.adapter->products[static_cast<size_t>(slice.target)];
        float* const own = inner + (from - begin) * inner_stride + s * lora_rank_stride_;
        if (product.a.rows > 0) function(job, from, own, product, slice);
      }
    }
  };
  float* tiles = reinterpret_cast<float*>(tiles_.data());
  const float* packed = nullptr;  // the rows whose tiles were placed last: slices share them
  group_.Clear();
  for_each([&](LinearJob job, int from, float* own, const PackedAdapter::Product& product,
               const LoraOp::Slice&) {
    job.weight = &product.a;
    job.x = BufferData(op.in) + from * Stride(op.in);
    job.x_stride = Stride(op.in);
    job.out = own;
    job.out_stride = inner_stride;
    if (job.x == packed) {
      AddToGroupOfSameRows(job);
      return;
    }
    packed = job.x;
    AddToGroup(job, tiles);
    tiles += GroupTileFloats(job.rows, product.a.k);
  });
  if (group_.jobs.empty()) return;
  RunGroup();
  tiles = reinterpret_cast<float*>(tiles_.data());
  group_.Clear();
  for_each([&](LinearJob job, int from, float* own, const PackedAdapter::Product& product,
               const LoraOp::Slice& slice) {
    job.weight = &product.b;
    job.x = own;
    job.x_stride = inner_stride;
    job.scale = product.scale * op.scale;
    job.accumulate = true;
    job.out = BufferData(op.out) + from * Stride(op.out) + slice.column;
    job.out_stride = Stride(op.out);
    AddToGroup(job, tiles);
    tiles += GroupTileFloats(job.rows, product.b.k);
  });
  RunGroup();
}

void CpuProgram::AddToGroupOfSameRows(LinearJob job) {
  job.x_tiles = group_.jobs.back().x_tiles;
  group_.spaces.push_back(nullptr);  // packed once, for the job before
  group_.first_unit.push_back(group_.first_unit.back() + LinearUnits(*job.weight));
  group_.jobs.push_back(job);
}

void CpuProgram::RunOp(const ActivateOp& op) {
  ActivateJob job;
  job.activation = op.activation;
  job.width = buffer_infos_[op.out].width;
  job.in = BufferData(op.in);
  job.in_stride = Stride(op.in);
  job.out = BufferData(op.out);
  job.out_stride = Stride(op.out);
  Share(RowCount(op.in), kLeastActivatedFloats / job.width + 1,
        [&](int from, int to, int) { kernels_.activate(job, from, to); });
}

}  // namespace quire::kernels::cpu
