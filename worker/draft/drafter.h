// A drafter proposes the next tokens of rows from what they hold; the target decides which of them
// are right. Whatever it proposes, no answer changes: a bad proposal costs time alone.
//
// Owner: the engine's creator; called from the engine's thread only. Each way of drafting is one
// file, with a line in the table of speculation.cc.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "common/ids.h"
#include "common/wire/sampling.h"

namespace quire {

struct CacheIdentity;

// A row that may be drafted for.
struct DraftRow {
  uint64_t sequence = 0;            // never used twice
  std::span<const TokenId> tokens;  // all of its tokens; outputs from `prompt_length` on
  int32_t prompt_length = 0;
  uint32_t choice = 0;
  const SamplingParams* sampling = nullptr;  // the noise of its outputs, too
  std::span<const TokenId> end_ids;          // as in Sequence
  std::span<const TokenId> prediction;       // what the client expects as its outputs; may be empty
  const CacheIdentity* cache = nullptr;      // as in Sequence; null: it shares nothing
  int32_t wanted = 0;                        // at most so many
  std::vector<TokenId>* drafts = nullptr;    // empty; the answer
};

class Drafter {
 public:
  virtual ~Drafter() = default;

  // Fills in the rows' drafts, each from its own row alone; none for a row is an answer too.
  virtual void Propose(std::span<const DraftRow> rows) = 0;
  // The sequence has ended.
  virtual void Forget(uint64_t sequence) = 0;
  // Whether it looks at DraftRow::prediction: routers send predictions to such workers alone.
  virtual bool UsesPredictions() const { return false; }
  // Whether it reads each step of the target, and the token behind each that a step computes.
  virtual bool ReadsSteps() const { return false; }
  // Sequences so far that gave up what the drafter holds for them, because others needed the room.
  virtual uint64_t Evictions() const { return 0; }
  // Microseconds of the engine's thread that a drafted token takes, about.
  virtual double TokenMicros() const { return 0; }
  // The same for what comes before the first draft of a sequence of `length` tokens: reading those
  // of them that the drafter has not seen.
  virtual double CatchUpMicros(uint64_t /*sequence*/, int64_t /*length*/) const { return 0; }
  // Whether a proposal behind a sample that is not known yet takes no time to speak of. Where it
  // does, a row waits for its last sample before it is proposed for.
  virtual bool GuessesForFree() const { return true; }
};

}  // namespace quire
