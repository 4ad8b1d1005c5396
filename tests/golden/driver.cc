#include "tests/golden/driver.h"

#include <algorithm>

#include "common/check.h"

namespace quire::golden {

std::unique_ptr<Driver> Driver::Make(const model::Model& model, const DriverOptions& options,
                                     std::string& error) {
  kernels::CpuOptions cpu;
  cpu.threads = options.threads;
  cpu.isa = options.isa;
  cpu.activation_dtype = options.activation_dtype;
  std::unique_ptr<Driver> driver(new Driver);
  driver->backend_ =
      options.make_backend ? options.make_backend() : kernels::MakeCpuBackend(cpu, error);
  if (driver->backend_ == nullptr) return nullptr;
  kernels::StepProgram program = model.program;
  program.dequantize_weights = options.dequantize_weights;
  program.round_activations = options.round_activations;
  driver->vocab_size_ = program.vocab_size;
  kernels::KvShape shape = kernels::KvShapeOf(program, options.block_size, options.kv_type);
  if (options.make_backend && options.kv_type == kernels::KvType::kF32) {
    shape = driver->backend_->PageShape(program, options.block_size);
  }
  driver->layout_ = kernels::DealLayers(program.layer_windows, shape, program.states);
  kernels::ProgramOptions load;
  load.kv = driver->layout_;
  const int64_t blocks = (options.max_positions + options.block_size - 1) / options.block_size;
  load.page_count = blocks * static_cast<int64_t>(driver->layout_.groups.size());
  load.max_tokens = options.max_positions;
  load.max_rows = 1;
  load.max_samples = options.max_positions;
  load.max_positions = options.max_positions;
  error = driver->backend_->Refusal(program, load);
  if (!error.empty()) return nullptr;
  driver->program_ = driver->backend_->Load(program, load);
  for (int64_t page = load.page_count - 1; page >= 0; --page) {
    driver->free_pages_.push_back(static_cast<int32_t>(page));
  }
  driver->tables_.resize(driver->layout_.groups.size());
  driver->Reset();
  return driver;
}

void Driver::Reset() {
  position_ = 0;
  for (std::vector<int32_t>& table : tables_) {
    for (int32_t page : table) {
      if (page >= 0) free_pages_.push_back(page);
    }
    table.clear();
  }
  for (int32_t page : free_pages_) program_->PoisonPage(page);
}

void Driver::PlacePages(int first_position, int count) {
  for (size_t group = 0; group < tables_.size(); ++group) {
    std::vector<int32_t>& table = tables_[group];
    const auto kind = static_cast<size_t>(layout_.groups[group].kind);
    const int window = layout_.kinds[kind].window;
    // The first new query sees keys from here on; blocks that end before it are given back.
    const int oldest = window > 0 ? std::max(first_position - window + 1, 0) : 0;
    for (int block = 0;
         block < std::min<int>(oldest / layout_.block_size, static_cast<int>(table.size()));
         ++block) {
      int32_t& page = table[static_cast<size_t>(block)];
      if (page < 0) continue;
      program_->PoisonPage(page);
      free_pages_.push_back(page);
      page = -1;
    }
    const int blocks = (first_position + count - 1) / layout_.block_size + 1;
    while (static_cast<int>(table.size()) < blocks) {
      QUIRE_CHECK(!free_pages_.empty());
      table.push_back(free_pages_.back());
      free_pages_.pop_back();
    }
  }
}

std::vector<Row> Driver::Feed(std::span<const int32_t> tokens, std::span<const int32_t> wanted) {
  const int count = static_cast<int>(tokens.size());
  PlacePages(position_, count);
  std::vector<int32_t> positions(tokens.size());
  for (int i = 0; i < count; ++i) positions[static_cast<size_t>(i)] = position_ + i;
  const std::vector<std::span<const int32_t>> tables(tables_.begin(), tables_.end());
  const kernels::BatchRow row{0, count, position_, tables};
  kernels::SampleRow greedy;
  greedy.temperature = 0.0f;
  const std::vector<kernels::SampleRow> samples(wanted.size(), greedy);
  std::vector<kernels::SampleOutput> outputs(wanted.size());
  kernels::StepBatch batch;
  batch.tokens = tokens;
  batch.positions = positions;
  batch.rows = std::span(&row, 1);
  batch.sampled_tokens = wanted;
  batch.sample_rows = samples;
  batch.sample_outputs = outputs;
  const auto vocab = static_cast<size_t>(vocab_size_);
  std::vector<float> logits(wanted.size() * vocab);
  program_->RunWithLogits(batch, logits);
  position_ += count;
  std::vector<Row> rows(wanted.size());
  for (size_t i = 0; i < rows.size(); ++i) {
    rows[i].logits.assign(logits.begin() + static_cast<int64_t>(i * vocab),
                          logits.begin() + static_cast<int64_t>((i + 1) * vocab));
    rows[i].token = outputs[i].token;
  }
  return rows;
}

}  // namespace quire::golden
