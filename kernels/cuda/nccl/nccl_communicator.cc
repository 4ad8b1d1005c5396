#include "kernels/cuda/nccl/nccl_communicator.h"

#include <algorithm>
#include <chrono>
#include <thread>

#include "kernels/cuda/ops/rows/rank_sum.h"

namespace quire::kernels::cuda::nccl {
namespace {

constexpr int64_t kSleepMicros = 50;
constexpr int64_t kLeaveMicros = 1'000'000;  // that a communicator may take to end in order

int64_t NowMicros() {
  return std::chrono::duration_cast<std::chrono::microseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

// Turns of a wait: spins at first, then sleeps.
class Waiter {
 public:
  explicit Waiter(int64_t limit_micros) : begin_(NowMicros()), limit_(limit_micros) {}
  // False when the time is up.
  bool Turn() const {
    const int64_t waited = NowMicros() - begin_;
    if (waited >= limit_) return false;
    if (waited > kCommunicatorSpinMicros) {
      std::this_thread::sleep_for(std::chrono::microseconds(kSleepMicros));
    }
    return true;
  }

 private:
  const int64_t begin_;
  const int64_t limit_;
};

// What a rank comes with: NCCL's id, of rank 0, and whether it lacks nothing.
struct Greeting {
  UniqueId id = {};
  uint32_t good = 0;
};

}  // namespace

NcclCommunicator::NcclCommunicator(const CommunicatorOptions& options)
    : library_(*options.library),
      nccl_(library_.functions()),
      runtime_(*options.runtime),
      host_(*options.host),
      stream_(options.stream),
      rank_(options.host->rank()),
      size_(options.host->size()),
      scratch_bytes_(options.scratch_bytes),
      before_abort_(options.before_abort) {}

std::unique_ptr<NcclCommunicator> NcclCommunicator::Create(const CommunicatorOptions& options,
                                                           std::string& error) {
  std::unique_ptr<NcclCommunicator> communicator(new NcclCommunicator(options));
  error = communicator->Join(options);
  if (error.empty()) return communicator;
  options.host->Abort();
  return nullptr;
}

std::string NcclCommunicator::Join(const CommunicatorOptions& options) {
  UniqueId id;
  if (std::string error = Greet(options, id); !error.empty()) return error;
  Config config;
  config.blocking = 0;
  wait_micros_ = options.init_micros;
  Settle("ncclCommInitRankConfig", nccl_.comm_init_rank_config(&comm_, size_, id, rank_, &config));
  return error_;
}

std::string NcclCommunicator::ReserveScratch() {
  const size_t least = kScratchBytesPerRank * static_cast<size_t>(size_);
  if (scratch_bytes_ < least) {
    return "scratch of " + std::to_string(scratch_bytes_) + " bytes; " + std::to_string(size_) +
           " ranks need at least " + std::to_string(least);
  }
  scratch_ = reinterpret_cast<float*>(Allocate(scratch_bytes_));
  if (scratch_ != nullptr) return {};
  return "no " + std::to_string(scratch_bytes_) + " bytes of device memory are left for sums";
}

std::string NcclCommunicator::Greet(const CommunicatorOptions& options, UniqueId& id) {
  std::string error = ReserveScratch();
  Greeting mine;
  if (rank_ == 0 && error.empty()) {
    const Result made = nccl_.get_unique_id(&mine.id);
    if (made != kSuccess) error = "ncclGetUniqueId: " + library_.ResultText(made);
  }
  mine.good = error.empty() ? 1 : 0;
  std::vector<Greeting> all(static_cast<size_t>(size_));
  const CommFailure told = AllGatherValues(*options.host, mine, std::span(all));
  if (!error.empty()) return error;
  if (told != CommFailure::kNone) {
    return std::string("the ranks did not come together: ") + CommFailureName(told);
  }
  for (size_t rank = 0; rank < all.size(); ++rank) {
    if (all[rank].good != 0) continue;
    return "rank " + std::to_string(rank) + " could not begin a group of NCCL's";
  }
  id = all.front().id;
  return {};
}

NcclCommunicator::~NcclCommunicator() {
  if (failure_ == CommFailure::kNone && comm_ != nullptr) {
    wait_micros_ = kLeaveMicros;
    if (Settle("ncclCommFinalize", nccl_.comm_finalize(comm_)) == CommFailure::kNone) {
      nccl_.comm_destroy(comm_);
      comm_ = nullptr;
    }
  }
  EndGroup();
  for (void* at : allocated_) runtime_.Free(at);
}

std::byte* NcclCommunicator::Allocate(size_t bytes) {
  void* at = nullptr;
  if (!runtime_.Allocate(bytes, &at).empty()) return nullptr;
  allocated_.push_back(at);
  return static_cast<std::byte*>(at);
}

CommFailure NcclCommunicator::AllReduceSum(std::span<float> values) {
  // Pieces of whole vectors, so that each rank's part begins on 16 bytes.
  const size_t most = scratch_bytes_ / sizeof(float) / static_cast<size_t>(size_) / 4 * 4;
  for (size_t at = 0; at < values.size() && failure_ == CommFailure::kNone;) {
    const std::span<float> piece = values.subspan(at, std::min(most, values.size() - at));
    AllGather(std::as_bytes(piece), {reinterpret_cast<std::byte*>(scratch_),
                                     piece.size_bytes() * static_cast<size_t>(size_)});
    if (failure_ != CommFailure::kNone) break;
    RankSumParams sum;
    sum.parts = scratch_;
    sum.out = piece.data();
    sum.ranks = size_;
    sum.count = static_cast<int64_t>(piece.size());
    TakeError(LaunchRankSum(runtime_, stream_, sum));
    at += piece.size();
  }
  return failure_;
}

CommFailure NcclCommunicator::AllGather(std::span<const std::byte> mine, std::span<std::byte> all) {
  if (failure_ != CommFailure::kNone) return failure_;
  return Settle("ncclAllGather", nccl_.all_gather(mine.data(), all.data(), mine.size(), kInt8,
                                                  comm_, runtime_.NativeStream(stream_)));
}

CommFailure NcclCommunicator::Broadcast(std::span<std::byte> data, int root) {
  if (failure_ != CommFailure::kNone) return failure_;
  return Settle("ncclBroadcast", nccl_.broadcast(data.data(), data.data(), data.size(), kInt8, root,
                                                 comm_, runtime_.NativeStream(stream_)));
}

CommFailure NcclCommunicator::Barrier() {
  auto* words = reinterpret_cast<std::byte*>(scratch_);
  constexpr size_t kWord = 16;
  const size_t own = kWord * static_cast<size_t>(rank_);  // in place, as NCCL has it
  return AllGather({words + own, kWord}, {words, kWord * static_cast<size_t>(size_)});
}

void NcclCommunicator::EndGroup() {
  if (comm_ == nullptr) return;
  if (before_abort_) before_abort_();
  nccl_.comm_abort(comm_);
  comm_ = nullptr;
}

CommFailure NcclCommunicator::Await(runtime::EventId event) {
  const Waiter waiter(wait_micros_);
  bool done = false;
  while (failure_ == CommFailure::kNone) {
    if (TakeError(runtime_.Query(event, &done)) != CommFailure::kNone) break;
    if (PollAsync("a collective") != CommFailure::kNone || done) break;
    if (!waiter.Turn()) return Fail(CommFailure::kDeadline, "a collective did not end in time");
  }
  return failure_;
}

CommFailure NcclCommunicator::Settle(const char* what, Result result) {
  if (failure_ != CommFailure::kNone) return failure_;
  if (result != kSuccess && result != kInProgress) {
    return Fail(CommFailure::kTransport, std::string(what) + ": " + library_.ResultText(result));
  }
  if (AbortAsked()) return Fail(CommFailure::kAborted, std::string(what) + ": aborted");
  if (result == kSuccess) return CommFailure::kNone;
  const Waiter waiter(wait_micros_);
  for (;;) {
    if (AbortAsked()) return Fail(CommFailure::kAborted, std::string(what) + ": aborted");
    Result state = kSuccess;
    result = nccl_.comm_get_async_error(comm_, &state);
    if (result == kSuccess || result == kInProgress) result = state;
    if (result == kSuccess) return failure_;
    if (result != kInProgress) return Settle(what, result);
    if (!waiter.Turn()) {
      return Fail(CommFailure::kDeadline, std::string(what) + ": still under way at the deadline");
    }
  }
}

CommFailure NcclCommunicator::PollAsync(const char* what) {
  Result state = kSuccess;
  const Result result = nccl_.comm_get_async_error(comm_, &state);
  if (result == kSuccess && state == kInProgress) state = kSuccess;  // what Await waits for
  return Settle(what, result != kSuccess ? result : state);
}

CommFailure NcclCommunicator::TakeError(runtime::Error error) {
  if (error.empty() || failure_ != CommFailure::kNone) return failure_;
  return Fail(CommFailure::kTransport, std::move(error));
}

CommFailure NcclCommunicator::Fail(CommFailure failure, std::string why) {
  failure_ = failure;
  error_ = std::move(why);
  abort_asked_.store(true);
  host_.Abort();
  EndGroup();
  return failure_;
}

}  // namespace quire::kernels::cuda::nccl
