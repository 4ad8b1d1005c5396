// How far other activations move a model's next tokens, on real text. Prints one line of JSON.
//
//   activations_bench --model=PATH --text=FILE --windows=20 --activation-dtype=int8
//
// The text is cut into windows of 512 tokens, each begun with the model's first token. In the
// second half of each, the distributions of the next token are compared: the Kullback-Leibler
// divergence from float32 activations on the same weights, in nats (llama.cpp's perplexity tool
// counts the same positions). Keys and values of the candidate are of its class's own type, or of
// --kv-cache-dtype.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <fstream>
#include <iterator>
#include <memory>
#include <vector>

#include "bench/flags.h"
#include "common/json/json.h"
#include "common/text/tokenizer.h"
#include "kernels/backend.h"
#include "kernels/kv_layout.h"
#include "worker/model/model.h"

namespace quire {
namespace {

constexpr int kWindow = 512;
constexpr int kScored = kWindow / 2;
constexpr int kPiece = 32;  // rows whose logits are held at once

struct Options {
  std::string model;
  std::string text;
  std::string activation_dtype = "int8";
  std::string kv_cache_dtype = "auto";
  int32_t threads = 2;
  int32_t windows = 20;
};

// One class of numerics, and the pages of one window.
class Subject {
 public:
  Subject(const model::Model& model, std::unique_ptr<kernels::Backend> backend,
          kernels::KvType type)
      : vocabulary_(model.program.vocab_size), kv_type_(type), backend_(std::move(backend)) {
    kernels::ProgramOptions options;
    options.kv =
        kernels::DealLayers(model.program.layer_windows,
                            kernels::KvShapeOf(model.program, kernels::KvShape{}.block_size, type));
    const int blocks = kWindow / options.kv.block_size;
    const auto groups = static_cast<int>(options.kv.groups.size());
    options.page_count = int64_t{blocks} * groups;
    options.max_tokens = kScored;
    options.max_rows = 1;
    options.max_samples = kPiece;
    for (int group = 0; group < groups; ++group) {
      std::vector<int32_t>& table = tables_.emplace_back();
      for (int i = 0; i < blocks; ++i) table.push_back(group * blocks + i);
    }
    program_ = backend_->Load(model.program, options);
    numerics_ = backend_->NumericsClass(model.program);
  }

  // Runs tokens at positions from `first` on; logits of all, or of none.
  std::vector<float> Run(std::span<const int32_t> tokens, int first, bool scored) {
    std::vector<int32_t> positions, wanted;
    for (size_t i = 0; i < tokens.size(); ++i) {
      positions.push_back(first + static_cast<int>(i));
      if (scored) wanted.push_back(static_cast<int32_t>(i));
    }
    const std::vector<std::span<const int32_t>> tables(tables_.begin(), tables_.end());
    const kernels::BatchRow row{0, static_cast<int>(tokens.size()), first, tables};
    const std::vector<kernels::SampleRow> samples(wanted.size());
    std::vector<kernels::SampleOutput> outputs(wanted.size());
    kernels::StepBatch batch;
    batch.tokens = tokens;
    batch.positions = positions;
    batch.rows = std::span(&row, 1);
    batch.sampled_tokens = wanted;
    batch.sample_rows = samples;
    batch.sample_outputs = outputs;
    std::vector<float> logits(wanted.size() * static_cast<size_t>(vocabulary_));
    program_->RunWithLogits(batch, logits);
    return logits;
  }
  std::string numerics() const { return numerics_; }
  kernels::KvType kv_type() const { return kv_type_; }

 private:
  int vocabulary_;
  kernels::KvType kv_type_;
  std::string numerics_;
  std::unique_ptr<kernels::Backend> backend_;
  std::unique_ptr<kernels::LoadedProgram> program_;
  std::vector<std::vector<int32_t>> tables_;
};

struct Distribution {
  double largest = 0;
  double log_sum = 0;  // of exp(logit − largest)
  int64_t best = 0;
  explicit Distribution(std::span<const float> logits) {
    best = std::max_element(logits.begin(), logits.end()) - logits.begin();
    largest = logits[static_cast<size_t>(best)];
    double sum = 0;
    for (const float logit : logits) sum += std::exp(logit - largest);
    log_sum = std::log(sum);
  }
  double LogOf(float logit) const { return logit - largest - log_sum; }
};

struct Score {
  std::vector<double> divergence;
  int64_t same_best = 0;
  double loss[2] = {};  // of float32, of the candidate
};

void Compare(std::span<const float> exact, std::span<const float> other, int32_t next,
             Score& score) {
  const Distribution p(exact), q(other);
  double divergence = 0;
  for (size_t i = 0; i < exact.size(); ++i) {
    const double log_p = p.LogOf(exact[i]);
    divergence += std::exp(log_p) * (log_p - q.LogOf(other[i]));
  }
  score.divergence.push_back(divergence);
  score.same_best += p.best == q.best ? 1 : 0;
  score.loss[0] -= p.LogOf(exact[static_cast<size_t>(next)]);
  score.loss[1] -= q.LogOf(other[static_cast<size_t>(next)]);
}

void RunWindow(std::span<const int32_t> tokens, Subject& exact, Subject& other, Score& score) {
  for (Subject* subject : {&exact, &other}) subject->Run(tokens.first(kScored), 0, false);
  for (int begin = kScored; begin < kWindow; begin += kPiece) {
    const std::span<const int32_t> piece = tokens.subspan(static_cast<size_t>(begin), kPiece);
    const std::vector<float> a = exact.Run(piece, begin, true);
    const std::vector<float> b = other.Run(piece, begin, true);
    const size_t width = a.size() / kPiece;
    for (size_t i = 0; i < kPiece && begin + static_cast<int>(i) + 1 < kWindow; ++i) {
      Compare({a.data() + i * width, width}, {b.data() + i * width, width},
              tokens[static_cast<size_t>(begin) + i + 1], score);
    }
  }
}

absl::StatusOr<std::vector<int32_t>> ReadTokens(const Options& options, const model::Model& model) {
  QUIRE_ASSIGN_OR_RETURN(const auto tokenizer,
                         text::Tokenizer::FromJson(model.bundle.tokenizer_json));
  std::ifstream file(options.text, std::ios::binary);
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  QUIRE_ASSIGN_OR_RETURN(std::vector<int32_t> tokens, tokenizer->Encode(text, true));
  if (tokens.size() >= static_cast<size_t>(options.windows) * kWindow) return tokens;
  return InvalidArgument("--text: " + std::to_string(tokens.size()) + " tokens are too few for " +
                         std::to_string(options.windows) + " windows of 512");
}

void Print(const Subject& other, Score& score) {
  const auto count = static_cast<double>(score.divergence.size());
  double sum = 0, squares = 0;
  for (const double one : score.divergence) {
    sum += one;
    squares += one * one;
  }
  const double mean = sum / count;
  std::sort(score.divergence.begin(), score.divergence.end());
  json::Object out;
  out["numerics"] = other.numerics();
  out["kv"] = kernels::KvTypeName(other.kv_type());
  out["positions"] = score.divergence.size();
  out["mean_kl"] = mean;
  out["standard_error"] = std::sqrt((squares / count - mean * mean) / count);
  out["p99_kl"] = score.divergence[static_cast<size_t>(0.99 * (count - 1))];
  out["same_best_token"] = static_cast<double>(score.same_best) / count;
  out["perplexity_float32"] = std::exp(score.loss[0] / count);
  out["perplexity"] = std::exp(score.loss[1] / count);
  std::printf("%s\n", json::Serialize(out).c_str());
}

absl::Status Measure(const Options& options) {
  QUIRE_ASSIGN_OR_RETURN(const auto model, model::LoadModel(options.model, {}));
  QUIRE_ASSIGN_OR_RETURN(std::vector<int32_t> tokens, ReadTokens(options, *model));
  std::string error;
  auto exact = kernels::MakeCpuBackend({.threads = options.threads}, error);
  auto other = kernels::MakeCpuBackend(
      {.threads = options.threads, .activation_dtype = options.activation_dtype}, error);
  if (exact == nullptr || other == nullptr) return InvalidArgument(error);
  kernels::KvType type = other->PageShape(model->program, 16).type;
  for (const auto one : {kernels::KvType::kF32, kernels::KvType::kBF16, kernels::KvType::kF16,
                         kernels::KvType::kFp8}) {
    if (options.kv_cache_dtype == kernels::KvTypeName(one)) type = one;
  }
  Subject reference(*model, std::move(exact), kernels::KvType::kF32);
  Subject candidate(*model, std::move(other), type);
  Score score;
  const int32_t first = tokens.front();
  for (int window = 0; window < options.windows; ++window) {
    int32_t* const begin = tokens.data() + static_cast<size_t>(window) * kWindow;
    *begin = first;
    RunWindow({begin, kWindow}, reference, candidate, score);
  }
  Print(candidate, score);
  return absl::OkStatus();
}

int Main(const std::vector<std::string>& args) {
  Options options;
  if (!bench::ParseFlags("activations_bench", args,
                         {{"model", &options.model},
                          {"text", &options.text},
                          {"activation-dtype", &options.activation_dtype},
                          {"kv-cache-dtype", &options.kv_cache_dtype},
                          {"threads", &options.threads},
                          {"windows", &options.windows}}))
    return 2;
  const absl::Status status = Measure(options);
  if (status.ok()) return 0;
  std::fprintf(stderr, "activations_bench: %s\n", StatusMessage(status).c_str());
  return 1;
}

}  // namespace
}  // namespace quire

int main(int argc, char** argv) {
  return quire::Main(quire::config::ArgumentsFromMain(argc, argv));
}
