// How long constraints take to compile, and the masks of texts under them: for the library alone,
// and through the worker's pool. Prints one line of JSON.
//
//   quire-bench-constraints --model=PATH --texts=20 --tokens=200
//
// Texts are random: each next token is drawn from its mask. A mask is timed with the acceptance of
// the token before it, first by a matcher alone and then, for the same text, by a pool without
// threads of its own.
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
  std::vector<double> compile, library, pool;
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

// False: the two masks differ.
bool WriteText(const std::shared_ptr<const grammar::Grammar>& grammar, MaskPool& pool, int tokens,
               std::mt19937_64& random, Times& times) {
  static uint64_t sequence = 0;
  pool.Begin(++sequence, {grammar}, {});
  const std::unique_ptr<grammar::Matcher> matcher = grammar->NewMatcher();
  std::vector<uint32_t> bits(pool.MaskOf(sequence).size());
  bool same = matcher->Mask(bits).ok();
  for (int i = 0; i < tokens && same && !matcher->Finished(); ++i) {
    const TokenId token = Draw(bits, random);
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
  MaskPool pool({.vocab_size = width});
  std::mt19937_64 random(7);
  Times times;
  for (int text = 0; text < options.texts; ++text) {
    for (const char* schema : bench::kSchemas) {
      Constraint constraint;
      constraint.kind = ConstraintKind::kJsonSchema;
      constraint.source = schema;
      const double start = Micros();
      const auto grammar = grammar::Grammar::Compile(*vocabulary, constraint, {}, nullptr);
      times.compile.push_back(Micros() - start);
      if (!grammar.ok() || !WriteText(*grammar, pool, options.tokens, random, times)) {
        std::fprintf(stderr, "quire-bench-constraints: a text went wrong under %s\n", schema);
        return 1;
      }
    }
  }
  json::Object out;
  out["vocabulary"] = width;
  out["vocabulary_ms"] = vocabulary_us / 1000;
  out["vocabulary_bytes"] = (*vocabulary)->MemoryBytes();
  out["masks"] = times.pool.size();
  const auto add = [&out](const std::string& name, std::vector<double>& values) {
    out[name + "_p50_us"] = At(values, 0.5);
    out[name + "_p99_us"] = At(values, 0.99);
  };
  add("compile", times.compile);
  add("library", times.library);
  add("pool", times.pool);
  std::printf("%s\n", json::Serialize(out).c_str());
  return 0;
}

}  // namespace
}  // namespace quire

int main(int argc, char** argv) {
  return quire::Main(quire::config::ArgumentsFromMain(argc, argv));
}
