// A step from its batch to its samples: graphs, slices, page copies, steps in flight.
#include <algorithm>
#include <cstring>

#include "kernels/cuda/backend/cuda_program.h"
#include "kernels/cuda/ops/rows/copy_rows.h"
#include "kernels/cuda/ops/rows/step_state.h"
#include "kernels/cuda/ops/sample/sample.h"
#include "kernels/cuda/ops/sample/sample_slice.h"

namespace quire::kernels::cuda {
void CudaProgram::RunWithLogits(const StepBatch& batch, std::span<float> logits) {
  Begin(batch, logits);
  Collect(batch.sample_outputs);
}

void CudaProgram::Begin(const StepBatch& batch, std::span<float> logits) {
  if (in_flight_ == kStepsInFlight) return Check("more steps in flight than there is memory for");
  StepFlight& flight = flights_[static_cast<size_t>((first_flight_ + in_flight_) % kStepsInFlight)];
  ++in_flight_;
  flight.samples = static_cast<int>(batch.sample_rows.size());
  flight.packed_used = flight.copies_used = false;
  if (exchange_ != nullptr) flight.wait_micros = communicator_->wait_micros();
  step_ = RunningStep{};
  step_.batch = &batch;
  step_.flight = &flight;
  step_.logits = logits;
  CopyPages(batch.copies);
  for (const BatchRow& row : batch.rows) {
    if (!adapters_.Holds(row.adapter)) Check("a row names an adapter's slot that holds none");
  }
  const bool work = !batch.tokens.empty() || !batch.table_changes.empty();
  if (work && error_.empty()) RunBatch();
  if (error_.empty()) Check(runtime_.Record(flight.done, stream_));
  step_ = RunningStep{};
}

bool CudaProgram::Done() {
  bool done = true;
  if (error_.empty() && in_flight_ > 0) {
    Check(runtime_.Query(flights_[static_cast<size_t>(first_flight_)].done, &done));
    if (exchange_ != nullptr) Check(exchange_->Look());
  }
  return done || !error_.empty();
}

void CudaProgram::Collect(std::span<SampleOutput> outputs) {
  if (in_flight_ == 0) return Check("no step is in flight");
  const StepFlight& flight = flights_[static_cast<size_t>(first_flight_)];
  first_flight_ = (first_flight_ + 1) % kStepsInFlight;
  --in_flight_;
  if (error_.empty()) {
    Check(exchange_ != nullptr ? exchange_->Await(flight.done, flight.wait_micros)
                               : runtime_.Synchronize(flight.done));
  }
  if (!error_.empty()) return;
  const size_t count = std::min(outputs.size(), static_cast<size_t>(flight.samples));
  std::copy_n(flight.outputs.host, count, outputs.data());
}

void CudaProgram::RunBatch() {
  const StepBatch& batch = *step_.batch;
  const StepShape shape = ShapeOfStep(batch, rules_);
  const DecodeGraph* graph = graphs_.Find(batch, shape);
  LayOut(batch, graph != nullptr ? graph->shape : shape);
  if (!error_.empty()) return;
  if (graph != nullptr) {
    Check(runtime_.LaunchGraph(graph->graph, stream_));
    step_.samples = shape.samples;
    for (const DeviceStep& step : lowered_.steps) {
      if (!error_.empty() || step_.samples == 0) return;
      if (const auto* logits = std::get_if<LogitsOp>(&step)) TellLogits(*logits);
      if (const auto* sample = std::get_if<SampleOp>(&step)) Do(*sample);
    }
    return;
  }
  BeginTokens();
  if (shape.tokens == 0) return;
  RunSteps(0, lowered_.first_sampled);
  // What follows the gathering of rows sees these rows alone, so it is done again for every slice.
  for (step_.first_sample = 0; step_.first_sample < shape.samples;
       step_.first_sample += max_samples_) {
    step_.samples = std::min(shape.samples - step_.first_sample, max_samples_);
    RunSteps(lowered_.first_sampled, lowered_.steps.size());
  }
}

// Brings a step's piece to the device, in the layout of `shape`.
void CudaProgram::LayOut(const StepBatch& batch, const StepShape& shape) {
  step_.shape = shape;
  step_.places = InputPlaces(shape);
  const int64_t words = step_.places.words;
  if (words > input_words_) {
    return Check("the indices of a step take " + std::to_string(words) + " words, of " +
                 std::to_string(input_words_));
  }
  StepFlight& flight = *step_.flight;
  FillInputs(batch, rules_, shape, {flight.inputs.host, static_cast<size_t>(words)});
  Check(runtime_.Copy(stream_, inputs_, flight.inputs.device, 4 * static_cast<size_t>(words)));
}

void CudaProgram::BeginTokens() {
  StepBeginParams params;
  params.changes = Input<int32_t>(step_.places.changes);
  params.pages = Input<int32_t>(step_.places.change_pages);
  params.change_count = Input<int32_t>(step_.places.change_count);
  params.most_changes = step_.shape.changes;
  params.tables = tables_;
  params.tokens = inputs_ + step_.places.tokens;
  params.token_count = step_.shape.tokens;
  params.last = last_samples_;
  Check(LaunchStepBegin(runtime_, stream_, params));
}

void CudaProgram::RunSteps(size_t begin, size_t end) {
  for (size_t i = begin; i < end && error_.empty(); ++i) {
    std::visit([this](const auto& step) { Do(step); }, lowered_.steps[i]);
  }
}

// Copies of one launch are independent: a page that is written and also named again waits for the
// next.
void CudaProgram::CopyPages(std::span<const PageCopy> copies) {
  StepFlight& flight = *step_.flight;
  for (size_t begin = 0; begin < copies.size() && error_.empty();) {
    if (flight.copies_used) Finish();  // the list is read until then
    flight.copies_used = true;
    int32_t* from = flight.page_copies.host;
    int32_t* to = from + kMaxPageCopies;
    int count = 0;
    const auto taken = [&](int32_t page, bool written) {
      for (int i = 0; i < count; ++i) {
        if (to[i] == page || (written && from[i] == page)) return true;
      }
      return false;
    };
    while (begin + static_cast<size_t>(count) < copies.size() && count < kMaxPageCopies) {
      const PageCopy& copy = copies[begin + static_cast<size_t>(count)];
      if (taken(copy.from, false) || taken(copy.to, true)) break;
      from[count] = copy.from;
      to[count] = copy.to;
      ++count;
    }
    CopyRowsParams params;
    params.from = pool_.begin();
    params.to = pool_.begin();
    params.from_rows = flight.page_copies.device;
    params.to_rows = flight.page_copies.device + kMaxPageCopies;
    params.rows = count;
    params.row_bytes = kv_.page_bytes;
    Check(LaunchCopyRows(runtime_, stream_, params));
    begin += static_cast<size_t>(count);
  }
}

void CudaProgram::TellLogits(const LogitsOp& op) {
  if (step_.logits.empty()) return;
  const auto stride = static_cast<size_t>(lowered_.buffers[static_cast<size_t>(op.out)].width);
  const auto count = static_cast<size_t>(vocabulary_.count);
  std::vector<float> rows(static_cast<size_t>(step_.samples) * stride);
  const std::byte* from = buffers_[static_cast<size_t>(op.out)];
  Check(runtime_.Copy(stream_, rows.data(), from, 4 * rows.size()));
  Finish();
  for (size_t i = 0; i < static_cast<size_t>(step_.samples); ++i) {
    std::memcpy(step_.logits.data() + (static_cast<size_t>(step_.first_sample) + i) * count,
                rows.data() + i * stride, 4 * count);
  }
}

size_t CudaProgram::PackedBytes(std::span<const SampleRow> rows) const {
  return ranks_ > 1 ? PackedSliceRowsBytes(rows) : PackedSampleRowsBytes(rows);
}

void CudaProgram::Sample(const SampleOp& op, int first, int count) {
  StepFlight& flight = *step_.flight;
  const auto at = static_cast<size_t>(step_.first_sample + first);
  const auto rows = step_.batch->sample_rows.subspan(at, static_cast<size_t>(count));
  const size_t bytes = PackedBytes(rows);
  if (bytes > samples_.capacity) {
    return Check("the lists of a sampled row take " + std::to_string(bytes) + " bytes, of " +
                 std::to_string(samples_.capacity));
  }
  if (flight.packed_used) Finish();  // the rows before are read until then
  flight.packed_used = true;
  if (!error_.empty()) return;
  const auto id = static_cast<size_t>(op.logits);
  const int64_t stride = lowered_.buffers[id].width;
  float* logits = reinterpret_cast<float*>(buffers_[id]) + first * stride;
  const auto* packed = reinterpret_cast<const DeviceSampleRow*>(samples_.device);
  if (ranks_ > 1) {
    SampleSliceParams params;
    params.logits = logits;
    params.stride = stride;
    params.sample_rows = packed;
    SampleAmongRanks(rows, bytes, params);
  } else {
    SampleParams params;
    params.logits = logits;
    params.stride = stride;
    params.sample_rows = packed;
    SampleAlone(rows, bytes, params);
  }
  StepEndParams end;
  end.outputs = samples_.outputs;
  end.host = flight.outputs.device + at;
  end.slots = Input<int32_t>(step_.places.sample_slots) + at;
  end.count = count;
  end.last = last_samples_;
  if (error_.empty()) Check(LaunchStepEnd(runtime_, stream_, end));
}

void CudaProgram::SampleAlone(std::span<const SampleRow> rows, size_t bytes, SampleParams params) {
  const DeviceHeap::Mapped<std::byte>& packed = step_.flight->packed;
  params.plain = PackSampleRows(rows, packed.host, samples_.device);
  Check(runtime_.Copy(stream_, samples_.device, packed.device, bytes));
  params.rows = static_cast<int>(rows.size());
  params.vocabulary = vocab_size_;
  params.outputs = samples_.outputs;
  Check(LaunchSample(runtime_, stream_, params));
}

// Rounds and messages follow from the rows alone: all ranks launch and gather the same.
void CudaProgram::SampleAmongRanks(std::span<const SampleRow> rows, size_t bytes,
                                   SampleSliceParams params) {
  const DeviceHeap::Mapped<std::byte>& packed = step_.flight->packed;
  const SliceRounds rounds = PackSliceRows(rows, packed.host, samples_.device);
  Check(runtime_.Copy(stream_, samples_.device, packed.device, bytes));
  params.count = vocabulary_.count;
  params.first_id = vocabulary_.begin;
  params.vocabulary = vocab_size_;
  params.rank = communicator_->rank();
  params.ranks = ranks_;
  params.states = samples_.slices;
  params.outputs = samples_.outputs;
  params.said = samples_.said;
  params.heard = samples_.heard;
  for (int round = 0; round <= rounds.count && error_.empty(); ++round) {
    Check(LaunchSampleSlice(runtime_, stream_, params, rounds, round));
    if (round == rounds.count || !error_.empty()) return;
    Check(exchange_->Gather(samples_.said, rounds.of[static_cast<size_t>(round)].Bytes()));
  }
}

}  // namespace quire::kernels::cuda
