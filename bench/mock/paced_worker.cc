#include "bench/mock/paced_worker.h"

#include <algorithm>
#include <utility>

#include "common/check.h"
#include "common/wire/features.h"

namespace quire::bench {
namespace {

// Routers take a worker without progress for one that hangs.
constexpr Micros kIdleProbe = 2 * kMicrosPerSecond;

int64_t BlocksFor(uint64_t tokens, uint32_t block_size) {
  return static_cast<int64_t>((tokens + block_size - 1) / block_size);
}

uint64_t Mix(uint64_t z) {
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ull;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBull;
  return z ^ (z >> 31);
}

}  // namespace

TokenId TokenOf(uint64_t seed, uint32_t choice, uint64_t index, uint32_t vocab_size) {
  const uint64_t mixed = Mix(Mix(seed + 0x9E3779B97F4A7C15ull * (choice + 1)) + index);
  return static_cast<TokenId>(kFirstMockToken + mixed % (vocab_size - kFirstMockToken));
}

TokenId StampOf(Micros now, uint32_t vocab_size) {
  const auto range = static_cast<Micros>(vocab_size - kFirstMockToken);
  return static_cast<TokenId>(kFirstMockToken + now / kStampStep % range);
}

Micros AgeOf(TokenId stamp, Micros now, uint32_t vocab_size) {
  const Micros range = MaxAge(vocab_size);
  const Micros written = (stamp - static_cast<TokenId>(kFirstMockToken)) * kStampStep;
  return ((now - written) % range + range) % range - kStampStep / 2;
}

Micros NextAtPhase(Micros now, Micros interval, Micros phase) {
  return now + interval - ((now - phase) % interval + interval) % interval;
}

Micros MaxAge(uint32_t vocab_size) {
  return static_cast<Micros>(vocab_size - kFirstMockToken) * kStampStep;
}

PacedWorker::PacedWorker(PaceOptions options, Executor& executor, std::function<void()> on_output)
    : options_(std::move(options)), executor_(executor), on_output_(std::move(on_output)) {
  QUIRE_CHECK(options_.vocab_size > kFirstMockToken && options_.block_size > 0);
  QUIRE_CHECK(options_.max_num_seqs > 0 && options_.capacity_blocks <= kMaxMockBlocks);
  Wake(executor_.clock().Now());
}

void PacedWorker::Describe(WorkerHello& hello) const {
  hello.model_id = options_.model_id;
  hello.numerics_id = options_.numerics_id;
  hello.block_size = options_.block_size;
  hello.hash_scheme = kHashScheme;
  hello.capacity_blocks = static_cast<uint64_t>(options_.capacity_blocks);
  hello.cache_groups = {{"full", 1, 0}};
  hello.limits.max_model_len = options_.max_model_len;
  hello.limits.max_num_seqs = options_.max_num_seqs;
  hello.limits.max_waiting_requests = options_.max_waiting;
  hello.limits.max_choices = options_.max_choices;
  hello.limits.max_stop_token_ids = kMaxStopTokenIds;
  hello.limits.max_logit_bias = kMaxLogitBias;
  hello.limits.max_frame_bytes = kMaxFrameBytes;
  hello.vocab_size = options_.vocab_size;
  hello.prefix_caching = options_.prefix_caching;
  // What says how a token is chosen is taken and changes none.
  for (const std::string_view feature : {kFeatureTypicalP, kFeaturePenalties, kFeatureLogitBias,
                                         kFeatureMinTokens, kFeatureChoices, kFeatureResume}) {
    hello.features.emplace_back(feature);
  }
  if (options_.prefix_caching) hello.features.emplace_back(kFeatureSnapshot);
}

// ------------------------------------------------------------------------------------ commands

bool PacedWorker::TryPush(EngineCommand&& command) {
  if (!HasRoom(command, commands_.size())) return false;
  commands_.push_back(std::move(command));
  Wake(executor_.clock().Now());
  return true;
}

PacedWorker::Request* PacedWorker::Find(RouterInstance router, const AttemptKey& key) {
  const auto it = requests_.find({router, key});
  return it == requests_.end() ? nullptr : it->second.get();
}

int64_t PacedWorker::BlocksOf(const SubmitCommand& command) const {
  const Submit& submit = command.submit;
  const auto outputs = static_cast<uint64_t>(submit.sampling.max_tokens);
  const uint64_t each =
      std::min<uint64_t>(submit.prompt_ids.size() + outputs, options_.max_model_len);
  return BlocksFor(each, options_.block_size) * static_cast<int64_t>(submit.choices.size());
}

void PacedWorker::Refuse(const SubmitCommand& command, RefusalCode code, std::string message) {
  ++counters_.refused;
  RouterOutput& words = WordsTo(command.router);
  const uint32_t retry_ms = code == RefusalCode::kQueueFull ? kMockRetryMs : 0;
  words.refused.push_back({command.submit.key, code, "", std::move(message), retry_ms});
}

void PacedWorker::Apply(const SubmitCommand& command) {
  const Submit& submit = command.submit;
  ++counters_.submits;
  last_submits_[command.router] = submit.submit_number;
  WordsTo(command.router);  // it hears at once that its submit counts in the load
  if (draining_) return Refuse(command, RefusalCode::kDraining, "this worker is draining");
  if (submit.prompt_ids.empty() || submit.prompt_ids.size() >= options_.max_model_len) {
    return Refuse(command, RefusalCode::kInvalid, "prompt_ids: does not fit the context");
  }
  // Those that will have a row in this turn do not wait.
  const size_t rows_free = options_.max_num_seqs - prefilling_.size() - decoding_.size();
  if (waiting_.size() >= options_.max_waiting + rows_free) {
    return Refuse(command, RefusalCode::kQueueFull, "as many requests wait as may");
  }
  const int64_t blocks = BlocksOf(command);
  if (blocks > options_.capacity_blocks) {
    return Refuse(command, RefusalCode::kTooLarge, "never fits this worker's cache");
  }
  auto request = std::make_unique<Request>();
  request->router = command.router;
  request->key = submit.key;
  request->seed = submit.sampling.seed;
  request->max_tokens = static_cast<uint64_t>(submit.sampling.max_tokens);
  request->deadline_us = command.deadline_us;
  request->prompt_tokens = static_cast<uint32_t>(submit.prompt_ids.size());
  request->work = submit.prompt_ids.size();
  request->blocks = blocks;
  for (const ResumedChoice& resumed : submit.choices) {
    Choice& choice = request->choices.emplace_back();
    choice.next = resumed.outputs.size();
    choice.ended = resumed.ended;
    request->work += resumed.outputs.size();
    if (submit.initial_window > 0) choice.granted = choice.next + submit.initial_window;
  }
  if (options_.script != nullptr) request->script = options_.script->AnswerTo(submit.prompt_ids);
  BlockHash hash = RootHash(options_.model_id, options_.numerics_id, submit.adapter, submit.salt);
  request->root = hash.low;
  const std::span<const TokenId> prompt(submit.prompt_ids);
  const size_t size = options_.block_size;
  for (size_t at = 0; options_.prefix_caching && at + size <= prompt.size(); at += size) {
    hash = HashBlock(hash, prompt.subspan(at, size));
    request->chain.push_back(hash.low);
  }
  const Key key{command.router, submit.key};
  if (command.deadline_us != kNeverMicros) deadlines_.emplace(command.deadline_us, key);
  waiting_.push_back(request.get());
  QUIRE_CHECK_MSG(requests_.emplace(key, std::move(request)).second, "the session saw it before");
}

void PacedWorker::Apply(const CancelCommand& command) {
  Request* request = Find(command.router, command.cancel.key);
  if (request == nullptr) return;
  if (!command.cancel.one_choice) return EndAll(*request, EndReason::kCancelled);
  EndChoice(*request, command.cancel.choice, EndReason::kCancelled);
}

void PacedWorker::Apply(const FinishCommand& command) {
  Request* request = Find(command.router, command.finish.key);
  if (request == nullptr) return;
  Choice& choice = request->choices.at(command.finish.choice);
  if (!choice.ended && choice.next > command.finish.output_count) {
    choice.discarded = static_cast<uint32_t>(
        std::min<uint64_t>(choice.generated, choice.next - command.finish.output_count));
  }
  EndChoice(*request, command.finish.choice, command.finish.reason);
}

void PacedWorker::Apply(const GrantCommand& command) {
  Request* request = Find(command.router, command.grant.key);
  if (request == nullptr) return;
  uint64_t& granted = request->choices.at(command.grant.choice).granted;
  granted = std::max(granted, command.grant.up_to_index);
}

void PacedWorker::Apply(const RouterLostCommand& command) {
  std::vector<Request*> lost;
  for (const auto& [key, request] : requests_) {
    if (key.first == command.router) lost.push_back(request.get());
  }
  for (Request* request : lost) {
    for (Choice& choice : request->choices) choice.ended = true;
    Leave(*request);
  }
  Sweep();
  last_submits_.erase(command.router);
  std::erase_if(snapshots_, [&](const auto& asked) { return asked.first == command.router; });
  std::erase_if(output_.routers,
                [&](const RouterOutput& words) { return words.router == command.router; });
}

void PacedWorker::Apply(const SnapshotCommand& command) {
  snapshots_.emplace_back(command.router, command.snapshot_number);
}

void PacedWorker::Apply(const DrainCommand& command) {
  draining_ = true;
  drain_at_ = command.deadline_us;
  while (!waiting_.empty()) EndAll(*waiting_.front(), EndReason::kDrained);
}

// ---------------------------------------------------------------------------------------- ends

void PacedWorker::EndChoice(Request& request, uint32_t index, EndReason reason) {
  Choice& choice = request.choices.at(index);
  if (choice.ended) return;
  choice.ended = true;
  const bool all = std::all_of(request.choices.begin(), request.choices.end(),
                               [](const Choice& c) { return c.ended; });
  Ended ended;
  ended.key = request.key;
  ended.choice = index;
  ended.reason = reason;
  ended.retryable = reason == EndReason::kDrained;
  ended.last_choice = all;
  ended.usage.prompt_tokens = request.prompt_tokens;
  ended.usage.cached_tokens = request.cached_tokens;
  const bool computed = request.phase == Request::Phase::kDecode;
  if (computed) {
    ended.usage.computed_tokens = static_cast<uint32_t>(request.work) - request.cached_tokens;
  }
  for (const Choice& c : request.choices) {
    ended.usage.generated_tokens += c.generated;
    ended.usage.discarded_tokens += c.discarded;
  }
  WordsTo(request.router).ended.push_back(std::move(ended));
  if (all) Leave(request);
}

void PacedWorker::EndAll(Request& request, EndReason reason) {
  for (uint32_t i = 0; i < request.choices.size(); ++i) EndChoice(request, i, reason);
}

// Removes it from its lists; a decoding one leaves its list when the turn is over, since the turn
// may be walking the list.
void PacedWorker::Leave(Request& request) {
  if (request.phase == Request::Phase::kWaiting) {
    std::erase(waiting_, &request);
  } else {
    held_blocks_ -= request.blocks;
  }
  if (request.phase == Request::Phase::kPrefill) std::erase(prefilling_, &request);
  over_.emplace_back(request.router, request.key);
}

void PacedWorker::EndDue(Micros now) {
  while (!deadlines_.empty() && deadlines_.begin()->first <= now) {
    const Key key = deadlines_.begin()->second;
    deadlines_.erase(deadlines_.begin());
    Request* request = Find(key.first, key.second);
    if (request != nullptr) EndAll(*request, EndReason::kDeadline);
  }
  if (now < drain_at_) return;
  drain_at_ = kNeverMicros;
  for (const auto& [key, request] : requests_) EndAll(*request, EndReason::kDrained);
}

// ---------------------------------------------------------------------------------------- pace

void PacedWorker::Admit(Micros now) {
  while (!waiting_.empty() && prefilling_.size() + decoding_.size() < options_.max_num_seqs) {
    Request& request = *waiting_.front();
    if (held_blocks_ + request.blocks > options_.capacity_blocks) break;
    waiting_.pop_front();
    held_blocks_ += request.blocks;
    const size_t hits = cached_.Hits(request.chain);
    request.cached_tokens = static_cast<uint32_t>(
        std::min<size_t>(hits, (request.prompt_tokens - 1) / options_.block_size) *
        options_.block_size);
    WordsTo(request.router)
        .admitted.push_back(
            {request.key, request.cached_tokens, event_seq_ + output_.events.size()});
    cached_.Shrink(static_cast<size_t>(options_.capacity_blocks - held_blocks_));
    for (CacheEvents& event : cached_.TakeEvents()) output_.events.push_back(std::move(event));
    Micros takes = 0;
    if (options_.prefill_tokens_per_s > 0) {
      const auto tokens = static_cast<double>(request.work - request.cached_tokens);
      takes = static_cast<Micros>(tokens / options_.prefill_tokens_per_s * kMicrosPerSecond);
    }
    prefill_free_at_ = std::max(prefill_free_at_, now) + takes;
    request.first_at = prefill_free_at_;
    request.phase = Request::Phase::kPrefill;
    prefilling_.push_back(&request);
  }
}

// First tokens of the prompts that are done.
void PacedWorker::BeginDecoding(Micros now) {
  while (!prefilling_.empty() && prefilling_.front()->first_at <= now) {
    Request& request = *prefilling_.front();
    prefilling_.pop_front();
    request.phase = Request::Phase::kDecode;
    cached_.Publish(request.root, request.chain,
                    static_cast<size_t>(options_.capacity_blocks - held_blocks_));
    for (CacheEvents& event : cached_.TakeEvents()) output_.events.push_back(std::move(event));
    decoding_.push_back(&request);
    if (next_step_at_ == 0) {
      next_step_at_ = options_.step_phase < 0
                          ? now + options_.decode_interval
                          : NextAtPhase(now, options_.decode_interval, options_.step_phase);
    }
    Emit(request, now);
  }
}

TokenId PacedWorker::NextToken(const Request& request, uint32_t choice, Micros now) const {
  const uint64_t index = request.choices[choice].next;
  if (request.script) return request.script->at(index);
  return options_.stamps ? StampOf(now, options_.vocab_size)
                         : TokenOf(request.seed, choice, index, options_.vocab_size);
}

void PacedWorker::Emit(Request& request, Micros now) {
  for (uint32_t i = 0; i < request.choices.size(); ++i) {
    Choice& choice = request.choices[i];
    if (choice.ended) continue;
    if (choice.next >= request.max_tokens) {
      EndChoice(request, i, EndReason::kLength);
      continue;
    }
    const uint64_t script_ends = request.script ? request.script->size() : UINT64_MAX;
    if (choice.next >= script_ends) {
      EndChoice(request, i, EndReason::kStop);
      continue;
    }
    if (choice.next >= choice.granted) continue;  // its client reads more slowly than it writes
    Output& output = WordsTo(request.router).outputs.emplace_back();
    output.key = request.key;
    output.choice = i;
    output.first_index = choice.next;
    output.ids.push_back(NextToken(request, i, now));
    ++choice.next;
    ++choice.generated;
    ++counters_.tokens;
    const bool full = request.prompt_tokens + choice.next >= options_.max_model_len;
    if (choice.next >= script_ends) {
      EndChoice(request, i, EndReason::kStop);
    } else if (full || choice.next >= request.max_tokens) {
      EndChoice(request, i, EndReason::kLength);
    }
  }
}

void PacedWorker::Step(Micros now) {
  if (next_step_at_ == 0 || now < next_step_at_) return;
  next_step_at_ += options_.decode_interval;
  if (next_step_at_ <= now) next_step_at_ = now + options_.decode_interval;  // it was held up
  for (Request* request : decoding_) Emit(*request, now);
}

void PacedWorker::Run() {
  const Micros now = executor_.clock().Now();
  due_now_ = false;
  while (!commands_.empty()) {
    const EngineCommand command = std::move(commands_.front());
    commands_.pop_front();
    std::visit([this](const auto& body) { Apply(body); }, command);
  }
  EndDue(now);
  Step(now);
  do {  // what ends at once leaves its row to the next that waits
    Sweep();
    Admit(now);
    BeginDecoding(now);
  } while (!over_.empty());
  if (decoding_.empty()) next_step_at_ = 0;
  Say(now);
}

void PacedWorker::Sweep() {
  if (over_.empty()) return;
  std::erase_if(decoding_, [](const Request* request) {
    return std::all_of(request->choices.begin(), request->choices.end(),
                       [](const Choice& c) { return c.ended; });
  });
  for (const Key& key : over_) requests_.erase(key);
  over_.clear();
}

void PacedWorker::Say(Micros now) {
  for (const auto& [router, number] : std::exchange(snapshots_, {})) {
    SnapshotPart head;
    head.router = router;
    head.snapshot_number = number;
    head.event_seq = event_seq_ + output_.events.size();
    cached_.Snapshot(head, output_.snapshot_parts);
  }
  output_.first_event_seq = event_seq_ + 1;
  event_seq_ += output_.events.size();
  output_.event_seq = event_seq_;
  Load& load = output_.load;
  load = Load();
  load.running_rows = static_cast<uint32_t>(prefilling_.size() + decoding_.size());
  load.waiting_requests = static_cast<uint32_t>(waiting_.size());
  for (const Request* request : waiting_) load.waiting_prefill_tokens += request->work;
  for (const Request* request : prefilling_) {
    load.running_prefill_tokens += request->work - request->cached_tokens;
  }
  load.held_blocks = static_cast<uint64_t>(held_blocks_);
  load.evictable_blocks = cached_.size();
  load.free_blocks =
      static_cast<uint64_t>(options_.capacity_blocks - held_blocks_) - load.evictable_blocks;
  load.steps_total = ++counters_.steps;
  output_.drained = draining_ && requests_.empty();
  for (RouterOutput& words : output_.routers) {
    words.last_admitted_submit = last_submits_[words.router];
  }
  progress_.last_step_end_us = now;
  progress_.steps_total = counters_.steps;
  const bool tell = outputs_.Push(output_);
  output_.routers.clear();
  output_.events.clear();
  output_.snapshot_parts.clear();
  Wake(NextWake(now));
  if (tell) on_output_();
}

Micros PacedWorker::NextWake(Micros now) const {
  Micros next = now + kIdleProbe;
  if (next_step_at_ != 0) next = std::min(next, next_step_at_);
  if (!prefilling_.empty()) next = std::min(next, prefilling_.front()->first_at);
  if (!deadlines_.empty()) next = std::min(next, deadlines_.begin()->first);
  return std::min(next, drain_at_);
}

// One timer at a time, for the earliest of what was asked for.
void PacedWorker::Wake(Micros due) {
  if (due <= executor_.clock().Now()) {
    if (std::exchange(due_now_, true)) return;
    executor_.Post([this, alive = std::weak_ptr(alive_)] {
      if (!alive.expired()) Run();
    });
    return;
  }
  if (!timer_.running() || due < timer_.due()) timer_.Set(due, [this] { Run(); });
}

RouterOutput& PacedWorker::WordsTo(RouterInstance router) {
  for (RouterOutput& words : output_.routers) {
    if (words.router == router) return words;
  }
  RouterOutput& words = output_.routers.emplace_back();
  words.router = router;
  return words;
}

void PacedWorker::CheckInvariants() const {
  int64_t held = 0;
  size_t waiting = 0;
  for (const auto& [key, request] : requests_) {
    const bool waits = request->phase == Request::Phase::kWaiting;
    waiting += waits ? 1 : 0;
    held += waits ? 0 : request->blocks;
  }
  QUIRE_CHECK(waiting == waiting_.size() && held == held_blocks_);
  QUIRE_CHECK(requests_.size() == waiting + prefilling_.size() + decoding_.size());
  QUIRE_CHECK(prefilling_.size() + decoding_.size() <= options_.max_num_seqs);
  QUIRE_CHECK(held_blocks_ + static_cast<int64_t>(cached_.size()) <= options_.capacity_blocks);
}

}  // namespace quire::bench
