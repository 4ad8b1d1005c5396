#include "kernels/cuda/backend/rank_exchange.h"

#include <algorithm>

namespace quire::kernels::cuda {

RankExchange::RankExchange(const RankExchangeOptions& options, runtime::Runtime& runtime,
                           DeviceHeap& heap)
    : runtime_(runtime), options_(options) {
  const auto most = static_cast<size_t>(options_.most_elements);
  if (options_.library == nullptr) {
    staging_ = heap.NewMapped<float>(most);
    std::byte* shared = options_.host->Allocate(sizeof(float) * most);
    own_sums_.resize(shared == nullptr ? most : 0);
    sums_ = shared == nullptr ? own_sums_.data() : reinterpret_cast<float*>(shared);
    return;
  }
  nccl::CommunicatorOptions group;
  group.library = options_.library;
  group.host = options_.host;
  group.runtime = &runtime_;
  group.stream = options_.stream;
  const int ranks = options_.host->size();
  group.scratch_bytes = std::max(
      static_cast<size_t>(ranks) * nccl::kScratchBytesPerRank,
      static_cast<size_t>(DeviceBytes(ranks, options_.most_elements * int64_t{sizeof(float)})));
  group.init_micros = options_.host->wait_micros();
  group.before_abort = options_.before_abort;
  nccl_ = nccl::NcclCommunicator::Create(group, error_);
  if (nccl_ == nullptr) return;
  error_ = runtime_.CreateEvent(&done_);
}

runtime::Error RankExchange::Sum(float* buffer, size_t count) {
  if (!error_.empty()) return error_;
  if (!queues()) return SumOnHost(buffer, count);
  nccl_->SetDeadline(options_.host->wait_micros());
  return nccl_->AllReduceSum({buffer, count}) == CommFailure::kNone ? runtime::Error()
                                                                    : NcclError();
}

runtime::Error RankExchange::SumOnHost(float* buffer, size_t count) {
  runtime::Error error =
      runtime_.Copy(options_.stream, staging_.host, buffer, sizeof(float) * count);
  if (error.empty()) error = runtime_.Synchronize(options_.stream);
  if (!error.empty()) return error;
  std::copy_n(staging_.host, count, sums_);
  if (options_.host->AllReduceSum({sums_, count}) != CommFailure::kNone) {
    return "a collective failed";
  }
  std::copy_n(sums_, count, staging_.host);
  return runtime_.Copy(options_.stream, buffer, staging_.device, sizeof(float) * count);
}

runtime::Error RankExchange::Gather(const std::byte* mine, size_t bytes) {
  if (!error_.empty()) return error_;
  if (!queues()) return GatherOverHost(mine, bytes);
  nccl_->SetDeadline(options_.host->wait_micros());
  const size_t all = static_cast<size_t>(options_.host->size()) * bytes;
  return nccl_->AllGather({mine, bytes}, {options_.gathered, all}) == CommFailure::kNone
             ? runtime::Error()
             : NcclError();
}

// The copy to the device reads `all_` until the next call, which waits for the stream first.
runtime::Error RankExchange::GatherOverHost(const std::byte* mine, size_t bytes) {
  runtime::Error error = runtime_.Synchronize(options_.stream);
  if (!error.empty()) return error;
  mine_.resize(bytes);
  all_.resize(bytes * static_cast<size_t>(options_.host->size()));
  error = runtime_.Copy(options_.stream, mine_.data(), mine, bytes);
  if (error.empty()) error = runtime_.Synchronize(options_.stream);
  if (!error.empty()) return error;
  if (options_.host->AllGather(mine_, all_) != CommFailure::kNone) return "a collective failed";
  return runtime_.Copy(options_.stream, options_.gathered, all_.data(), all_.size());
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
  if (queues()) nccl_->Look();  // finds that
}

}  // namespace quire::kernels::cuda
