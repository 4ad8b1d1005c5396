#include "kernels/cuda/backend/rank_exchange.h"

#include <bit>

#include "kernels/cuda/backend/expand.h"
#include "kernels/cuda/ops/rank_sum_rows.h"

namespace quire::kernels::cuda {
namespace {

// Of NCCL's own sums, which nothing here asks for.
constexpr size_t kNcclScratchBytes = size_t{64} << 10;
// As long as the first steps of ranks may take. Who watches ranks knows the limit of each step, and
// ends a rank that is beyond it from outside.
constexpr int64_t kNcclWaitMicros = 60'000'000;

float Widen(uint16_t bits) { return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16); }

}  // namespace

RankExchange::RankExchange(const RankExchangeOptions& options, runtime::Runtime& runtime,
                           DeviceHeap& heap)
    : runtime_(runtime), options_(options) {
  const auto most = static_cast<size_t>(options_.most_elements);
  if (options_.library == nullptr) {
    staging_ = heap.NewMapped<uint16_t>(2 * most);
    std::byte* shared = options_.host->Allocate(4 * most);
    own_sums_.resize(shared == nullptr ? most : 0);
    sums_ = shared == nullptr ? own_sums_.data() : reinterpret_cast<float*>(shared);
    return;
  }
  nccl::CommunicatorOptions group;
  group.library = options_.library;
  group.host = options_.host;
  group.runtime = &runtime_;
  group.stream = options_.stream;
  group.scratch_bytes = kNcclScratchBytes;
  nccl_ = nccl::NcclCommunicator::Create(group, error_);
  if (nccl_ == nullptr) return;
  nccl_->SetDeadline(kNcclWaitMicros);
  gathered_ = heap.New<uint16_t>(2 * static_cast<size_t>(options_.host->size()) * most);
  error_ = runtime_.CreateEvent(&done_);
}

runtime::Error RankExchange::Sum(uint16_t* buffer, const uint16_t* delta, size_t count) {
  if (!error_.empty()) return error_;
  return options_.library == nullptr ? SumOnHost(buffer, delta, count)
                                     : SumOnDevice(buffer, delta, count);
}

runtime::Error RankExchange::SumOnDevice(uint16_t* buffer, const uint16_t* delta, size_t count) {
  const auto ranks = static_cast<size_t>(options_.host->size());
  RankSumRowsParams sum;
  sum.parts = gathered_;
  sum.out = buffer;
  sum.ranks = options_.host->size();
  sum.count = static_cast<int64_t>(count);
  const auto gather = [&](const uint16_t* mine, uint16_t* all) {
    return nccl_->AllGather(std::as_bytes(std::span(mine, count)),
                            std::as_writable_bytes(std::span(all, ranks * count)));
  };
  CommFailure failure = gather(buffer, gathered_);
  if (failure == CommFailure::kNone && delta != nullptr) {
    uint16_t* deltas = gathered_ + ranks * count;
    failure = gather(delta, deltas);
    sum.deltas = deltas;
  }
  if (failure != CommFailure::kNone) return NcclError();
  return LaunchRankSumRows(runtime_, options_.stream, sum);
}

// A rank's own part is summed in float32 before it is sent.
runtime::Error RankExchange::SumOnHost(uint16_t* buffer, const uint16_t* delta, size_t count) {
  uint16_t* deltas = staging_.host + options_.most_elements;
  runtime::Error error = runtime_.Copy(options_.stream, staging_.host, buffer, 2 * count);
  if (error.empty() && delta != nullptr) {
    error = runtime_.Copy(options_.stream, deltas, delta, 2 * count);
  }
  if (error.empty()) error = runtime_.Synchronize(options_.stream);
  if (!error.empty()) return error;
  for (size_t i = 0; i < count; ++i) {
    sums_[i] = Widen(staging_.host[i]) + (delta == nullptr ? 0.0f : Widen(deltas[i]));
  }
  if (options_.host->AllReduceSum({sums_, count}) != CommFailure::kNone) {
    return "a collective failed";
  }
  for (size_t i = 0; i < count; ++i) staging_.host[i] = RoundToBf16(sums_[i]);
  return runtime_.Copy(options_.stream, buffer, staging_.device, 2 * count);
}

runtime::Error RankExchange::Await(runtime::EventId event) {
  if (nccl_ == nullptr) return runtime_.Synchronize(event);
  return nccl_->Await(event) == CommFailure::kNone ? runtime::Error() : NcclError();
}

runtime::Error RankExchange::Finish() {
  if (nccl_ == nullptr) return runtime_.Synchronize(options_.stream);
  runtime::Error error = runtime_.Record(done_, options_.stream);
  return error.empty() ? Await(done_) : error;
}

}  // namespace quire::kernels::cuda
