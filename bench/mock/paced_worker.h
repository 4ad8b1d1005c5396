// A worker without a model: it answers an engine's commands at a pace that a timer sets. It uses
// the product's own Attach sessions, so that the whole wire is the real one.
//
// Owner: its program, on the executor that its AttachHub runs on.
//  1. Output `index` of a choice is TokenOf(seed, choice, index), whichever workers write the
//     answer: streams can be checked without a reference run. With a script it is the script's
//     answer to the prompt, which ends with its last token.
//  2. At most max_num_seqs requests run and max_waiting wait; more are refused.
//  3. A request holds the blocks that it can ever need from its admission to its end. free +
//     evictable + held = capacity.
//  4. Prompts are computed one after another, at prefill_tokens_per_s; with each decode_interval
//     every row has a further token. 0 is at once for either.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "bench/mock/block_set.h"
#include "bench/mock/script.h"
#include "common/runtime/timer.h"
#include "common/wire/hello.h"
#include "worker/engine/engine_driver.h"

namespace quire::bench {

// A snapshot of so many blocks leaves at once, within what may wait for a router.
inline constexpr int64_t kMaxMockBlocks = 262'144;
// Ids below are left out: they may be special.
inline constexpr uint32_t kFirstMockToken = 300;
inline constexpr uint32_t kMockRetryMs = 100;

TokenId TokenOf(uint64_t seed, uint32_t choice, uint64_t index, uint32_t vocab_size);
// A token that encodes when it was written, in steps of a millisecond: its age is known up to
// MaxAge, 1.7 s with 2,048 tokens, and begins again from there. AgeOf takes off the half of a step
// that is added on average.
inline constexpr Micros kStampStep = 1000;
TokenId StampOf(Micros now, uint32_t vocab_size);
Micros MaxAge(uint32_t vocab_size);
Micros AgeOf(TokenId stamp, Micros now, uint32_t vocab_size);

// The first time after `now` that is `phase` beyond a multiple of `interval`.
Micros NextAtPhase(Micros now, Micros interval, Micros phase);

struct PaceOptions {
  std::string model_id;
  std::string numerics_id;
  uint32_t vocab_size = 2048;
  uint32_t max_model_len = 4096;
  uint32_t max_num_seqs = 256;
  uint32_t max_waiting = 256;
  uint32_t max_choices = 8;
  uint32_t block_size = 16;
  int64_t capacity_blocks = 65'536;
  double prefill_tokens_per_s = 0;
  Micros decode_interval = 20 * kMicrosPerMilli;
  Micros step_phase = -1;  // steps come at NextAtPhase; −1: counted from the first row's begin
  bool prefix_caching = true;
  bool stamps = false;             // StampOf instead of TokenOf
  const Script* script = nullptr;  // outlives the worker
};

// What it counts for its program; read on the executor.
struct PacedCounters {
  uint64_t tokens = 0;
  uint64_t submits = 0;
  uint64_t refused = 0;
  uint64_t steps = 0;
};

class PacedWorker final : public EngineDriver {
 public:
  // `executor` outlives the worker. `on_output` runs on it.
  PacedWorker(PaceOptions options, Executor& executor, std::function<void()> on_output);

  bool TryPush(EngineCommand&& command) override;
  void TakeOutputs(std::vector<EngineOutput>& outputs) override { outputs_.Take(outputs); }
  const StepProgress& progress() const override { return progress_; }

  // Its Hello, apart from its identity and its text.
  void Describe(WorkerHello& hello) const;

  const PacedCounters& counters() const { return counters_; }
  size_t live() const { return requests_.size(); }
  int64_t held_blocks() const { return held_blocks_; }
  void CheckInvariants() const;

 private:
  struct Choice {
    uint64_t next = 0;  // index of its next output
    uint64_t granted = UINT64_MAX;
    uint32_t generated = 0;
    uint32_t discarded = 0;
    bool ended = false;
  };
  struct Request {
    RouterInstance router;
    AttemptKey key;
    uint64_t seed = 0;
    uint64_t max_tokens = 0;
    int64_t deadline_us = kNeverMicros;
    uint32_t prompt_tokens = 0;
    uint32_t cached_tokens = 0;
    uint64_t work = 0;  // tokens of its prefill, those of resumed outputs counted
    uint64_t root = 0;
    std::vector<uint64_t> chain;  // of its prompt
    std::vector<Choice> choices;
    std::optional<std::vector<TokenId>> script;
    int64_t blocks = 0;
    Micros first_at = 0;  // admitted: when its prompt is done
    enum class Phase : uint8_t { kWaiting, kPrefill, kDecode } phase = Phase::kWaiting;
  };
  using Key = std::pair<RouterInstance, AttemptKey>;

  void Apply(const SubmitCommand& command);
  void Apply(const CancelCommand& command);
  void Apply(const FinishCommand& command);
  void Apply(const GrantCommand& command);
  void Apply(const RouterLostCommand& command);
  void Apply(const GrammarCommand& /*command*/) {}  // it serves no constraints
  void Apply(const WatchCommand& /*command*/) {}
  void Apply(const SnapshotCommand& command);
  void Apply(const SnapshotSentCommand& /*command*/) {}
  void Apply(const DrainCommand& command);
  void Apply(const AdapterCommand& /*command*/) {}  // its adapters stay as they are

  void Wake(Micros due);
  void Run();
  void Step(Micros now);
  void Admit(Micros now);
  void BeginDecoding(Micros now);
  void Emit(Request& request, Micros now);
  TokenId NextToken(const Request& request, uint32_t choice, Micros now) const;
  void Refuse(const SubmitCommand& command, RefusalCode code, std::string message);
  void EndChoice(Request& request, uint32_t choice, EndReason reason);
  void EndAll(Request& request, EndReason reason);
  void EndDue(Micros now);
  void Leave(Request& request);
  void Sweep();  // forgets those that have left
  void Say(Micros now);
  Micros NextWake(Micros now) const;
  RouterOutput& WordsTo(RouterInstance router);
  Request* Find(RouterInstance router, const AttemptKey& key);
  int64_t BlocksOf(const SubmitCommand& command) const;

  const PaceOptions options_;
  Executor& executor_;
  const std::function<void()> on_output_;
  StepProgress progress_;
  PacedCounters counters_;

  std::deque<EngineCommand> commands_;
  std::map<Key, std::unique_ptr<Request>> requests_;
  std::deque<Request*> waiting_;
  std::deque<Request*> prefilling_;  // by first_at
  std::vector<Request*> decoding_;
  std::vector<Key> over_;  // ended, to be swept in this turn
  std::multimap<int64_t, Key> deadlines_;
  std::map<RouterInstance, uint64_t> last_submits_;  // seen, by number
  Micros prefill_free_at_ = 0;
  Micros next_step_at_ = 0;  // 0: 0: no row decodes
  int64_t held_blocks_ = 0;
  BlockSet cached_;
  uint64_t event_seq_ = 0;
  std::vector<std::pair<RouterInstance, uint64_t>> snapshots_;  // asked for in this turn
  bool draining_ = false;
  int64_t drain_at_ = kNeverMicros;
  EngineOutput output_;
  OutputQueue outputs_;
  Timer timer_{executor_};
  bool due_now_ = false;                                        // a turn has been posted
  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);  // watched by posted work
};

}  // namespace quire::bench
