#include "kernels/cpu/rank_sampling.h"

#include <algorithm>

namespace quire::kernels::cpu {
namespace {

size_t RowsAtOnce(int max_rows) {
  return static_cast<size_t>(std::clamp(max_rows, 1, RankSampling::kRowsAtOnce));
}

size_t MostBytes(int max_rows) {
  return RowsAtOnce(max_rows) * sampling::SliceSampler::kMostMessageBytes;
}

}  // namespace

RankSampling::RankSampling(const StepProgram& program, Communicator& communicator, int max_rows)
    : communicator_(communicator),
      slice_(VocabularyOf(program)),
      vocab_size_(program.vocab_size),
      samplers_(RowsAtOnce(max_rows)),
      mine_(MostBytes(max_rows) / sizeof(uint64_t)),
      all_(mine_.size() * static_cast<size_t>(communicator.size())),
      offsets_(samplers_.size() + 1) {
  for (sampling::SliceSampler& sampler : samplers_) {
    sampler.Reserve(slice_.count, program.vocab_size);
  }
}

int64_t RankSampling::ReservedBytes(const StepProgram& program, int max_rows) {
  const int64_t each =
      sampling::SliceSampler::ReservedBytes(VocabularyOf(program).count, program.vocab_size);
  return static_cast<int64_t>(RowsAtOnce(max_rows)) * each +
         static_cast<int64_t>(MostBytes(max_rows)) * (program.ranks + 1);
}

bool RankSampling::Run(const Logits& logits, std::span<const SampleRow> rows,
                       std::span<SampleOutput> outputs, ThreadPool& pool) {
  const int count = static_cast<int>(rows.size());
  const int most = static_cast<int>(samplers_.size());
  for (int first = 0; first < count; first += most) {
    const int group = std::min(count - first, most);
    for (int i = 0; i < group; ++i) {
      const std::span<float> slice(logits.data + (first + i) * logits.stride,
                                   static_cast<size_t>(slice_.count));
      samplers_[i].Begin(slice,
                         {communicator_.rank(), communicator_.size(), slice_.begin, vocab_size_},
                         rows[first + i], outputs[first + i]);
    }
    if (!RunRounds(group, pool)) return false;
  }
  return true;
}

bool RankSampling::RunRounds(int rows, ThreadPool& pool) {
  while (true) {
    offsets_[0] = 0;
    for (int i = 0; i < rows; ++i) offsets_[i + 1] = offsets_[i] + samplers_[i].MessageBytes();
    const size_t bytes = offsets_[rows];
    if (bytes == 0) return true;
    const auto mine = std::as_writable_bytes(std::span(mine_)).first(bytes);
    const auto all = std::as_writable_bytes(std::span(all_))
                         .first(bytes * static_cast<size_t>(communicator_.size()));
    pool.Run(rows, [&](int i, int) {
      if (samplers_[i].done()) return;
      samplers_[i].Say(mine.subspan(offsets_[i], offsets_[i + 1] - offsets_[i]));
    });
    if (communicator_.AllGather(mine, all) != CommFailure::kNone) return false;
    pool.Run(rows, [&](int i, int) {
      if (!samplers_[i].done()) samplers_[i].Hear({all.data() + offsets_[i], bytes});
    });
  }
}

}  // namespace quire::kernels::cpu
