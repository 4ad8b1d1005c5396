// Constraints on text, compiled against a tokenizer's vocabulary: which tokens may come next.
// llguidance does the work, in the Rust bridge.
//
// A Vocabulary and a Grammar are immutable and shared by any number of threads; a Matcher belongs
// to one thread at a time. Constraints are hostile input. Invariants:
//  1. Compile and Mask take a bounded number of steps and bytes (Limits), never a time; above, they
//     end in an error that names the limit. No constraint is recursed into.
//  2. A Matcher's state is a function of its grammar and the tokens that it has accepted.
//  3. A matcher that has failed says so in every call after that.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "absl/status/statusor.h"
#include "common/ids.h"
#include "common/text/tokenizer.h"
#include "common/wire/constraint.h"

namespace quire::grammar {

// Defaults are llguidance's, except for memory.
struct Limits {
  size_t max_grammar_symbols = 500'000;
  size_t max_items_in_row = 2'000;
  uint64_t initial_lexer_fuel = 1'000'000;  // of Compile
  uint64_t step_lexer_fuel = 200'000;       // of each Mask and each token
  size_t step_max_items = 50'000;
  size_t max_lexer_states = 50'000;  // about 2 kB each
  size_t max_depth = 64;             // of a schema's objects, arrays and alternatives
};

// Why a constraint is refused; each has a counter.
enum class Fault : uint8_t {
  kNone = 0,
  kMalformed,    // no JSON, no expression, no grammar
  kUnsupported,  // a keyword, format or construct that is not compiled
  kTooLarge,     // symbols, states, bytes
  kTooDeep,
  kTooSlow,  // fuel
  kMatchesNothing,
  kMissingToken,  // the vocabulary lacks a token that it needs
  kCancelled,
};

// Of a status that this room returned; its message begins with the path inside the constraint where
// there is one: "constraint: /properties/a/not: …; supported: …".
Fault FaultOf(const absl::Status& status);

// The trie of a tokenizer's tokens, and the slices that make common masks cheap.
class Vocabulary {
 public:
  // `width`: ids in [0, width) have a bit in masks; those that the tokenizer lacks are never
  // allowed. `end_ids`: the model's end-of-sequence ids. Takes about a second at 128k tokens. The
  // vocabulary keeps what it needs of the tokenizer alive.
  static absl::StatusOr<std::shared_ptr<const Vocabulary>> Make(const text::Tokenizer& tokenizer,
                                                                int32_t width,
                                                                std::span<const TokenId> end_ids);
  // What Make leaves resident at most, before it is called.
  static size_t EstimateBytes(const text::Tokenizer& tokenizer);
  // The same for a tokenizer of that many tokens, whose bytes are so many in all.
  static size_t EstimateBytes(int64_t tokens, int64_t token_bytes);

  ~Vocabulary();
  int32_t width() const;
  size_t mask_words() const { return (static_cast<size_t>(width()) + 31) / 32; }
  size_t MemoryBytes() const;

 private:
  friend class Grammar;
  struct Impl;
  explicit Vocabulary(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

class Matcher;

class Grammar {
 public:
  // Another thread sets `cancelled` when the result is of no use any more; may be null.
  static absl::StatusOr<std::shared_ptr<const Grammar>> Compile(
      std::shared_ptr<const Vocabulary> vocabulary, const Constraint& constraint,
      const Limits& limits, const std::atomic<bool>* cancelled);

  ~Grammar();
  // At the beginning of a text.
  std::unique_ptr<Matcher> NewMatcher() const;
  size_t MemoryBytes() const;  // at most, without its matchers

 private:
  friend class Matcher;
  struct Impl;
  explicit Grammar(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

class Matcher {
 public:
  ~Matcher();
  Matcher(const Matcher&) = delete;
  Matcher& operator=(const Matcher&) = delete;

  // Takes further tokens of the text. INVALID_ARGUMENT at the first that the grammar does not
  // allow: its index is in the message. An end-of-sequence token that is allowed ends the text.
  absl::Status Accept(std::span<const TokenId> tokens);

  // Which tokens may come next: bit id % 32 of bits[id / 32], mask_words() of them. End-of-sequence
  // ids are among them exactly where the text may end.
  absl::Status Mask(std::span<uint32_t> bits);

  // The text is complete and nothing can follow it.
  bool Finished() const;
  // The text may end here.
  bool MayEnd() const;

  // The tokens that have to follow, because each is the only one that may; empty as a rule. Does
  // not accept them.
  absl::StatusOr<std::span<const TokenId>> Forced();

  // A matcher with the same state that another thread may use.
  std::unique_ptr<Matcher> Fork() const;
  size_t MemoryBytes() const;  // at most

 private:
  friend class Grammar;
  struct Impl;
  explicit Matcher(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace quire::grammar
