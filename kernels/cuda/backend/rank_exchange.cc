#include "kernels/cuda/backend/rank_exchange.h"

#include <bit>

#include "kernels/cuda/backend/expand.h"
#include "kernels/cuda/ops/rank_sum_rows.h"

namespace quire::kernels::cuda {
namespace {

// Of NCCL's own sums, which nothing here asks for.
constexpr size_t kNcclScratchBytes = size_t{64} << 10;

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
  group.init_micros = options_.host->wait_micros();
  nccl_ = nccl::NcclCommunicator::Create(group, error_);
  if (nccl_ == nullptr) return;
  gathered_ = heap.New<uint16_t>(2 * static_cast<size_t>(options_.host->size()) * most);
  error_ = runtime_.CreateEvent(&done_);
}

runtime::Error RankExchange::Sum(uint16_t* buffer, const uint16_t* delta, size_t count) {
  if (!error_.empty()) return error_;
  if (!queues()) return SumOnHost(buffer, delta, count);
  nccl_->SetDeadline(options_.host->wait_micros());
  return SumOnDevice(buffer, delta, count);
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

runtime::Error RankExchange::Gather(const float* mine, size_t count) {
  if (!error_.empty()) return error_;
  if (!queues()) return GatherOverHost(mine, count);
  nccl_->SetDeadline(options_.host->wait_micros());
  const std::span<float> parts(options_.parts, static_cast<size_t>(options_.host->size()) * count);
  const CommFailure failure =
      nccl_->AllGather(std::as_bytes(std::span(mine, count)), std::as_writable_bytes(parts));
  return failure == CommFailure::kNone ? runtime::Error() : NcclError();
}

// The copy to the device reads `all_` until the next call, which waits for the stream first.
runtime::Error RankExchange::GatherOverHost(const float* mine, size_t count) {
  runtime::Error error = runtime_.Synchronize(options_.stream);
  if (!error.empty()) return error;
  mine_.resize(count);
  all_.resize(count * static_cast<size_t>(options_.host->size()));
  error = runtime_.Copy(options_.stream, mine_.data(), mine, sizeof(float) * count);
  if (error.empty()) error = runtime_.Synchronize(options_.stream);
  if (!error.empty()) return error;
  if (options_.host->AllGather(std::as_bytes(std::span(mine_)),
                               std::as_writable_bytes(std::span(all_))) != CommFailure::kNone) {
    return "a collective failed";
  }
  return runtime_.Copy(options_.stream, options_.parts, all_.data(), sizeof(float) * all_.size());
}

runtime::Error RankExchange::Await(runtime::EventId event, int64_t wait_micros) {
  if (!queues()) return runtime_.Synchronize(event);
  nccl_->SetDeadline(wait_micros);
  return nccl_->Await(event) == CommFailure::kNone ? runtime::Error() : NcclError();
}

runtime::Error RankExchange::Finish() {
  if (!queues()) return runtime_.Synchronize(options_.stream);
  runtime::Error error = runtime_.Record(done_, options_.stream);
  return error.empty() ? Await(done_, options_.host->wait_micros()) : error;
}

runtime::Error RankExchange::Look() {
  if (!queues() || nccl_->Look() == CommFailure::kNone) return {};
  return NcclError();
}

void RankExchange::Abort() {
  options_.host->Abort();
  if (queues()) nccl_->Abort();
}

}  // namespace quire::kernels::cuda
