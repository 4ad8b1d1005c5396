#include "worker/constraint_setup.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "common/text/tokenizer.h"
#include "worker/rank_programs.h"

namespace quire {
namespace {

constexpr double kMostOfAnything = 1e12;
constexpr int kCpusPerMaskThread = 4;
constexpr int kMostMaskThreads = 8;
// Of a token: its entries in the tries and in the tokenizer, and its bytes in tokenizers in use.
constexpr int64_t kTokenBytes = 200;
constexpr int64_t kUsualTokenLength = 8;

struct LimitFlag {
  const char* name;
  const char* help;
  config::Target target;
};

}  // namespace

void AddConstraintFlags(config::Schema& schema, WorkerConfig& c) {
  schema.Group("Constraints");
  grammar::Limits& limits = c.constraint.limits;
  const LimitFlag flags[] = {
      {"constraint-max-symbols", "Symbols of a compiled grammar; a larger one is refused.",
       &limits.max_grammar_symbols},
      {"constraint-max-row-items", "Items of a grammar's parser at one place of a text.",
       &limits.max_items_in_row},
      {"constraint-compile-fuel", "Steps of the lexer while a grammar is compiled.",
       &limits.initial_lexer_fuel},
      {"constraint-step-fuel", "Steps of the lexer for one token and its mask.",
       &limits.step_lexer_fuel},
      {"constraint-step-items", "Items of the parser that one mask makes.", &limits.step_max_items},
      {"constraint-max-lexer-states",
       "States of the lexer that one answer makes, of about 2 kB each.", &limits.max_lexer_states},
      {"constraint-max-depth", "Levels of a schema or a grammar inside one another.",
       &limits.max_depth},
      {"constraint-cache-entries", "Compiled grammars that are kept for requests to come.",
       &c.constraint.max_cached},
  };
  for (const LimitFlag& flag : flags) {
    schema.Add({.name = flag.name,
                .help = flag.help,
                .target = flag.target,
                .min = 1,
                .max = kMostOfAnything});
  }
  schema.Add({.name = "constraint-cache-bytes",
              .help = "Memory for compiled grammars that are kept.",
              .target = config::InBytes(&c.constraint.max_cached_bytes),
              .min = 0,
              .max = kMostOfAnything});
  schema.Add({.name = "constraint-state-bytes",
              .help = "Memory for the states of all constrained answers together; the answer that "
                      "would exceed it fails.",
              .target = config::InBytes(&c.constraint_state_bytes),
              .min = 1,
              .max = kMostOfAnything});
  schema.Add({.name = "max-queued-constraints",
              .help = "Constraints that wait to be compiled, half of them of one tenant; requests "
                      "with more are refused.",
              .target = &c.max_queued_constraints,
              .min = 2,
              .max = 1 << 20});
  schema.Add({.name = "constraint-threads",
              .help = "Threads that compute which tokens may follow, beside the step.",
              .target = &c.mask_threads,
              .min = 0,
              .max = 256,
              .default_text = "a quarter of --threads, 1 to 8"});
  schema.Add({.name = "forced-tokens",
              .help = "Compute the tokens that a constraint forces in one step; answers stay the "
                      "same.",
              .target = &c.engine.forced_tokens});
}

int64_t ConstraintBytes(const WorkerConfig& config, int32_t vocab_size) {
  const int64_t length = int64_t{vocab_size} * kUsualTokenLength;
  const int64_t vocabulary =
      static_cast<int64_t>(grammar::Vocabulary::EstimateBytes(vocab_size, length)) +
      kTokenBytes * vocab_size;
  // Of one step, and of rows that pause behind another.
  const int64_t draft_masks = 2 * static_cast<int64_t>(kMaxMaskedDrafts) * (vocab_size / 8 + 4);
  return vocabulary + draft_masks + static_cast<int64_t>(config.constraint.max_cached_bytes) +
         static_cast<int64_t>(config.constraint_state_bytes);
}

WorkLimits CompileLimits(const WorkerConfig& config) {
  const size_t queued = static_cast<size_t>(config.max_queued_constraints);
  return {.max_queued = queued, .max_of_owner = std::max<size_t>(1, queued / 2)};
}

std::shared_ptr<SharedVocabulary> VocabularyOf(const model::Model& model) {
  const int32_t width = model.program.vocab_size;
  return std::make_shared<SharedVocabulary>([&text = model.bundle,
                                             width]() -> SharedVocabulary::Made {
    QUIRE_ASSIGN_OR_RETURN(const auto tokenizer, text::Tokenizer::FromJson(text.tokenizer_json));
    std::vector<TokenId> ends = text.eos_token_ids;
    std::erase_if(ends, [width](TokenId id) { return id < 0 || id >= width; });
    return grammar::Vocabulary::Make(*tokenizer, width, ends);
  });
}

MaskPoolOptions MaskOptions(const WorkerConfig& config, int32_t vocab_size) {
  MaskPoolOptions options;
  options.threads = config.mask_threads;
  if (options.threads == 0) {
    options.threads = std::clamp(ThreadsOfWorker(config) / kCpusPerMaskThread, 1, kMostMaskThreads);
  }
  options.vocab_size = vocab_size;
  options.max_bytes = config.constraint_state_bytes;
  options.looks_ahead = config.engine.forced_tokens;
  return options;
}

}  // namespace quire
