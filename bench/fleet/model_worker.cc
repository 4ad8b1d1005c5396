#include "bench/fleet/model_worker.h"

#include <algorithm>

#include "common/check.h"

namespace quire::bench {

int64_t BlockCache::Held(const std::vector<uint64_t>& chain, int64_t limit) const {
  int64_t held = 0;
  while (held < limit && blocks_.contains(chain[static_cast<size_t>(held)])) ++held;
  return held;
}

void BlockCache::Use(const std::vector<uint64_t>& chain, int64_t end, std::vector<uint64_t>& stored,
                     std::vector<uint64_t>& removed) {
  QUIRE_CHECK(end <= static_cast<int64_t>(chain.size()) && end <= capacity_);
  std::vector<uint64_t> came;
  for (int64_t block = end - 1; block >= 0; --block) {
    const uint64_t hash = chain[static_cast<size_t>(block)];
    const auto known = blocks_.find(hash);
    if (known != blocks_.end()) {
      order_.splice(order_.begin(), order_, known->second);
      continue;
    }
    order_.push_front(hash);
    blocks_[hash] = order_.begin();
    came.push_back(hash);
  }
  stored.insert(stored.end(), came.rbegin(), came.rend());
  while (static_cast<int64_t>(blocks_.size()) > capacity_) {
    removed.push_back(order_.back());
    blocks_.erase(order_.back());
    order_.pop_back();
  }
}

ModelWorker::ModelWorker(const FleetModelOptions& options, int32_t block_size)
    : options_(options),
      block_size_(block_size),
      cache_(options.cache_blocks),
      last_submits_(static_cast<size_t>(options.routers)) {}

void ModelWorker::Submit(ModelRequest* request) {
  waiting_.push_back(request);
  last_submits_[static_cast<size_t>(request->router)] = request->submit_number;
}

Micros ModelWorker::Begin() {
  QUIRE_CHECK(!idle());
  while (!waiting_.empty() && rows_.size() < static_cast<size_t>(options_.max_rows)) {
    ModelRequest* request = waiting_.front();
    waiting_.pop_front();
    // One full kind without holes: what CachedPrefix says is the longest beginning that is held.
    const int64_t blocks = cache_.Held(request->chain, (request->prompt - 1) / block_size_);
    request->cached = request->computed = blocks * block_size_;
    rows_.push_back(request);
    Admitted admitted;
    admitted.key = {RequestNumber(static_cast<uint64_t>(request->number)), Attempt(1)};
    admitted.cached_tokens = static_cast<uint32_t>(request->cached);
    admitted.event_seq = event_seq_;
    admitted_.emplace_back(request->router, admitted);
  }
  double cost = options_.step_us;
  int64_t budget = options_.step_tokens;
  prefill_.clear();
  for (ModelRequest* request : rows_) {
    const int64_t left = request->prompt - request->computed;
    const int64_t tokens = std::min(left, budget);
    budget -= tokens;
    cost += options_.prefill_us * static_cast<double>(tokens);
    if (left == 0) cost += options_.row_us;
    if (tokens > 0) prefill_.emplace_back(request, tokens);
  }
  work_us_ += cost - options_.step_us;
  return static_cast<Micros>(cost);
}

void ModelWorker::End(Micros now, StepFrame& frame,
                      std::vector<std::pair<int32_t, Admitted>>& admitted) {
  frame.first_event_seq = event_seq_ + 1;
  for (ModelRequest* request : rows_) {
    if (request->computed == request->prompt) ++request->written;
  }
  for (const auto& [request, tokens] : prefill_) {
    request->computed += tokens;
    if (request->computed == request->prompt) {
      request->first_token = now;
      request->written = 1;
    }
    CacheEvents stored, removed;
    removed.kind = CacheEvents::Kind::kRemoved;
    cache_.Use(request->chain, request->computed / block_size_, stored.hashes, removed.hashes);
    if (!stored.hashes.empty()) frame.events.push_back(std::move(stored));
    if (!removed.hashes.empty()) frame.events.push_back(std::move(removed));
  }
  event_seq_ += frame.events.size();
  frame.event_seq = event_seq_;
  frame.frame_seq = ++frame_seq_;
  std::erase_if(rows_, [this](const ModelRequest* row) { return row->written >= options_.output; });
  frame.load.running_rows = static_cast<uint32_t>(rows_.size());
  frame.load.waiting_requests = static_cast<uint32_t>(waiting_.size());
  for (const ModelRequest* request : rows_) {
    frame.load.running_prefill_tokens += static_cast<uint64_t>(request->prompt - request->computed);
  }
  for (const ModelRequest* request : waiting_) {
    frame.load.waiting_prefill_tokens += static_cast<uint64_t>(request->prompt);
  }
  frame.routers_attached = static_cast<uint32_t>(options_.routers);
  frame.state = WorkerState::kReady;
  admitted.swap(admitted_);
}

}  // namespace quire::bench
