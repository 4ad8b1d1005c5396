#include "worker/model/shard.h"

#include <algorithm>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/check.h"
#include "kernels/communicator.h"
#include "kernels/step_program.h"

namespace quire::model {
namespace {

constexpr int kMostNamed = 16;  // counts that work, as far as a message names them

// Elements that share a block along K in a part's tensors, the most of all layers; 1 where they are
// floats. The builder finds and reports a missing tensor.
struct Unit {
  int64_t elements = 1;
  std::string why;  // the tensor and its type
};

Unit FindUnit(const TensorNaming& naming, const load::ModelConfig& config,
              const load::ModelFiles& files, Part part) {
  Unit unit;
  for (int layer = 0; layer < config.layers; ++layer) {
    if (files.quantisation() != nullptr) {
      const int64_t hidden = config.hidden_size;
      const int64_t cols = part == Part::kOutput ? int64_t{config.heads} * config.head_dim
                                                 : config.intermediate_size;
      for (const std::string& module : ModuleNames(naming, part, layer)) {
        const auto found = files.quantisation()->Find(files.tensors(), module, hidden, cols);
        if (!found.ok() || !found->has_value()) continue;
        const kernels::DType form = (*found)->Form();
        if (kernels::BlockElements(form) <= unit.elements) continue;
        unit = {kernels::BlockElements(form),
                absl::StrCat("\"", module, "\" is quantised as ", kernels::DTypeName(form))};
      }
    }
    for (const std::string& name : TensorNames(naming, files.is_gguf(), part, layer, "weight")) {
      const load::Tensor* tensor = files.tensors().Find(name);
      if (tensor == nullptr || !tensor->type.has_value()) continue;
      const int64_t elements = kernels::BlockElements(*tensor->type);
      if (elements <= unit.elements) continue;
      unit = {elements, absl::StrCat("\"", tensor->name, "\" is ", tensor->type_name)};
    }
  }
  return unit;
}

// The properties of a model that its division depends on.
class Cutter {
 public:
  Cutter(const TensorNaming& naming, const load::ModelConfig& config, const load::ModelFiles& files)
      : config_(config),
        output_(FindUnit(naming, config, files, Part::kOutput)),
        down_(FindUnit(naming, config, files, Part::kDown)) {}

  // Empty when `ranks` can share the model; otherwise the obstacle.
  std::string WhyNot(int ranks) const {
    if (config_.heads % ranks != 0) {
      return absl::StrCat(config_.heads, " attention heads do not divide among ", ranks, " ranks");
    }
    if (config_.kv_heads % ranks != 0 && ranks % config_.kv_heads != 0) {
      return absl::StrCat(config_.kv_heads, " heads of keys and values neither divide among ",
                          ranks, " ranks nor ", ranks, " ranks among them");
    }
    const int64_t width = int64_t{config_.heads / ranks} * config_.head_dim;
    if (width % output_.elements != 0) {
      return absl::StrCat("attention heads of ", config_.head_dim, ", ", config_.heads / ranks,
                          " for each of ", ranks, " ranks, do not end on a border of blocks of ",
                          output_.elements, ", ", output_.why);
    }
    if (config_.intermediate_size % down_.elements != 0) {
      return absl::StrCat("an intermediate size of ", config_.intermediate_size,
                          " is not made of blocks of ", down_.elements, ", ", down_.why);
    }
    if (config_.intermediate_size / down_.elements < ranks) {
      return absl::StrCat("an intermediate size of ", config_.intermediate_size, " has ",
                          config_.intermediate_size / down_.elements, " blocks of ", down_.elements,
                          " for ", ranks, " ranks",
                          down_.why.empty() ? "" : absl::StrCat(", ", down_.why));
    }
    if (kernels::VocabularyOf(config_.vocab_size, ranks - 1, ranks).count < 1) {
      return absl::StrCat("a vocabulary of ", config_.vocab_size,
                          " leaves nothing for the last of ", ranks, " ranks");
    }
    return "";
  }

  // "1, 2 or 4"
  std::string CountsThatWork() const {
    std::vector<std::string> counts;
    for (int ranks = 1; ranks <= kernels::kMaxRanks && counts.size() < kMostNamed; ++ranks) {
      if (WhyNot(ranks).empty()) counts.push_back(absl::StrCat(ranks));
    }
    const std::string last = counts.back();
    counts.pop_back();
    return counts.empty() ? last : absl::StrCat(absl::StrJoin(counts, ", "), " or ", last);
  }

  Shard Cut(const Rank& at) const {
    Shard shard;
    shard.rank = at.rank;
    shard.ranks = at.ranks;
    shard.heads = config_.heads / at.ranks;
    shard.kv_heads = std::max(1, config_.kv_heads / at.ranks);
    const int64_t first_kv_head = int64_t{at.rank} * config_.kv_heads / at.ranks;
    const int64_t head_dim = config_.head_dim;
    shard.queries = {at.rank * shard.heads * head_dim, shard.heads * head_dim};
    shard.keys = {first_kv_head * head_dim, shard.kv_heads * head_dim};
    // As even as whole blocks permit. One rank has all: the builder reports what a damaged file
    // lacks.
    const int64_t blocks = config_.intermediate_size / down_.elements;
    const auto border = [&](int64_t rank) {
      return (blocks * rank + at.ranks - 1) / at.ranks * down_.elements;
    };
    const int64_t begin = border(at.rank);
    const int64_t end = border(at.rank + 1);
    shard.inner = {begin, (at.ranks == 1 ? config_.intermediate_size : end) - begin};
    const kernels::VocabularySlice ids =
        kernels::VocabularyOf(config_.vocab_size, at.rank, at.ranks);
    shard.vocabulary = {ids.begin, ids.count};
    return shard;
  }

 private:
  const load::ModelConfig& config_;
  const Unit output_;
  const Unit down_;
};

}  // namespace

absl::StatusOr<Shard> CutModel(const TensorNaming& naming, const load::ModelConfig& config,
                               const load::ModelFiles& files, const Rank& rank) {
  QUIRE_CHECK(rank.ranks >= 1 && rank.rank >= 0 && rank.rank < rank.ranks);
  const Cutter cutter(naming, config, files);
  if (rank.ranks == 1) return cutter.Cut(rank);
  std::string why = cutter.WhyNot(rank.ranks);
  if (rank.ranks > kernels::kMaxRanks) why = absl::StrCat(rank.ranks, " are too many ranks");
  if (why.empty()) return cutter.Cut(rank);
  return absl::InvalidArgumentError(absl::StrCat(
      files.path(), ": ", why, "; use --tensor-parallel-size ", cutter.CountsThatWork()));
}

}  // namespace quire::model
