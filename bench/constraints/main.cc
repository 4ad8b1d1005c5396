// How long constraints take to compile, and the masks of texts under them: for the library alone,
// and through the worker's pool. Prints one line of JSON.
//
//   quire-bench-constraints --model=PATH --texts=20 --tokens=200
//
// There are two kinds of text: answers as models write them ("instances"), and walks, whose next
// token is drawn from its mask. A mask is timed with the acceptance of the token before it, first
// by a matcher alone and then, for the same text, by a pool without threads of its own.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "bench/constraints/schemas.h"
#include "bench/flags.h"
#include "common/grammar/grammar.h"
#include "common/json/json.h"
#include "worker/constrain/mask_pool.h"
#include "worker/model/model.h"

namespace quire {
namespace {

struct Options {
  std::string model;
  int32_t texts = 20;    // of each schema
  int32_t tokens = 200;  // of a text at most
};

double Micros() {
  const auto since = std::chrono::steady_clock::now().time_since_epoch();
  return std::chrono::duration<double, std::micro>(since).count();
}

struct Times {
  std::vector<double> library, pool;
};

TokenId Draw(std::span<const uint32_t> mask, std::mt19937_64& random) {
  std::vector<TokenId> allowed;
  for (size_t word = 0; word < mask.size(); ++word) {
    for (uint32_t bits = mask[word]; bits != 0; bits &= bits - 1) {
      allowed.push_back(static_cast<TokenId>(word * 32) + __builtin_ctz(bits));
    }
  }
  return allowed.empty() ? -1 : allowed[random() % allowed.size()];
}

// `next` gives the token behind a mask, −1 at the end. False: the two masks differ, or one of them
// forbids what follows.
template <class Next>
bool WriteText(const std::shared_ptr<const grammar::Grammar>& grammar, MaskPool& pool,
               const Next& next, Times& times) {
  static uint64_t sequence = 0;
  pool.Begin(++sequence, {grammar}, {});
  const std::unique_ptr<grammar::Matcher> matcher = grammar->NewMatcher();
  std::vector<uint32_t> bits(pool.MaskOf(sequence).size());
  bool same = matcher->Mask(bits).ok();
  while (same && !matcher->Finished()) {
    const TokenId token = next(bits);
    if (token < 0) break;
    const double begin = Micros();
    same = matcher->Accept({&token, 1}).ok();
    const bool finished = matcher->Finished();
    if (!finished) same = same && matcher->Mask(bits).ok();
    const double middle = Micros();
    pool.Accept(sequence, token);
    pool.Send();
    const std::span<const uint32_t> mask = pool.MaskOf(sequence);
    const double end = Micros();
    times.library.push_back(middle - begin);
    times.pool.push_back(end - middle);
    same = same && (finished || std::equal(mask.begin(), mask.end(), bits.begin()));
  }
  pool.End(sequence);
  return same;
}

double At(std::vector<double>& values, double share) {
  std::sort(values.begin(), values.end());
  return values[static_cast<size_t>(share * static_cast<double>(values.size() - 1))];
}

struct Measured {
  std::vector<double> compile;  // microseconds
  Times walks, instances;
};

// False: a text went wrong, and its cause is on stderr.
bool Measure(const text::Tokenizer& tokenizer,
             const std::shared_ptr<const grammar::Vocabulary>& vocabulary, const Options& options,
             Measured& found) {
  MaskPool pool({.vocab_size = vocabulary->width()});
  std::mt19937_64 random(7);
  const auto went_wrong = [](const char* text) {
    std::fprintf(stderr, "quire-bench-constraints: a text went wrong: %s\n", text);
    return false;
  };
  for (int text = 0; text < options.texts; ++text) {
    std::vector<std::shared_ptr<const grammar::Grammar>> grammars;
    for (const char* schema : bench::kSchemas) {
      Constraint constraint;
      constraint.kind = ConstraintKind::kJsonSchema;
      constraint.source = schema;
      const double start = Micros();
      const auto grammar = grammar::Grammar::Compile(vocabulary, constraint, {}, nullptr);
      found.compile.push_back(Micros() - start);
      if (!grammar.ok()) return went_wrong(schema);
      grammars.push_back(*grammar);
      int left = options.tokens;
      const auto draw = [&](std::span<const uint32_t> mask) {
        return left-- > 0 ? Draw(mask, random) : -1;
      };
      if (!WriteText(*grammar, pool, draw, found.walks)) return went_wrong(schema);
    }
    for (const bench::Instance& instance : bench::kInstances) {
      const auto ids = tokenizer.Encode(instance.text, false);
      if (!ids.ok()) return went_wrong(instance.text);
      size_t at = 0;
      const auto next = [&](std::span<const uint32_t>) {
        return at < ids->size() ? (*ids)[at++] : -1;
      };
      const auto& grammar = grammars[static_cast<size_t>(instance.schema)];
      if (!WriteText(grammar, pool, next, found.instances)) return went_wrong(instance.text);
    }
  }
  return true;
}

int Main(const std::vector<std::string>& args) {
  Options options;
  if (!bench::ParseFlags(
          "quire-bench-constraints", args,
          {{"model", &options.model}, {"texts", &options.texts}, {"tokens", &options.tokens}})) {
    return 2;
  }
  const auto model = model::LoadModel(options.model, {});
  if (!model.ok()) {
    std::fprintf(stderr, "quire-bench-constraints: %s\n", StatusMessage(model.status()).c_str());
    return 2;
  }
  const text::TextBundle& bundle = (*model)->bundle;
  const auto tokenizer = text::Tokenizer::FromJson(bundle.tokenizer_json);
  if (!tokenizer.ok()) return 2;
  const int32_t width = (*model)->program.vocab_size;
  const double begin = Micros();
  const auto vocabulary = grammar::Vocabulary::Make(**tokenizer, width, bundle.eos_token_ids);
  if (!vocabulary.ok()) return 2;
  const double vocabulary_us = Micros() - begin;
  Measured found;
  if (!Measure(**tokenizer, *vocabulary, options, found)) return 1;
  json::Object out;
  out["vocabulary"] = width;
  out["vocabulary_ms"] = vocabulary_us / 1000;
  out["vocabulary_bytes"] = (*vocabulary)->MemoryBytes();
  out["masks"] = found.walks.pool.size() + found.instances.pool.size();
  const auto add = [&out](const std::string& name, std::vector<double>& values) {
    out[name + "_p50_us"] = At(values, 0.5);
    out[name + "_p99_us"] = At(values, 0.99);
  };
  add("compile", found.compile);
  add("walks_library", found.walks.library);
  add("walks_pool", found.walks.pool);
  add("instances_library", found.instances.library);
  add("instances_pool", found.instances.pool);
  std::printf("%s\n", json::Serialize(out).c_str());
  return 0;
}

}  // namespace
}  // namespace quire

int main(int argc, char** argv) {
  return quire::Main(quire::config::ArgumentsFromMain(argc, argv));
}
