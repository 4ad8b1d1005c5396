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

constexpr int64_t kMxfp4Elements = 32;  // of a block of gpt-oss' experts
constexpr int kMostNamed = 16;          // counts that work, as far as a message names them

// Elements that share a block along K in a part's tensors, the most of all layers and experts; 1
// where they are floats. The builder finds and reports a missing tensor.
struct Unit {
  int64_t elements = 1;
  std::string why;  // the tensor and its type
};

class UnitFinder {
 public:
  UnitFinder(const TensorNaming& naming, const load::ModelConfig& config,
             const load::ModelFiles& files)
      : naming_(naming), config_(config), files_(files) {}

  // Of a part with `cols` columns; `experts` of it in each layer, 0: it is the layer's own.
  Unit Find(Part part, int64_t cols, int experts = 0) const {
    Unit unit;
    for (int layer = 0; layer < config_.layers; ++layer) {
      if (experts == 0) Look(part, layer, cols, unit);
      // In GGUF they are one tensor.
      for (int expert = 0; expert < (files_.is_gguf() ? std::min(experts, 1) : experts); ++expert) {
        Look(part, {layer, expert}, cols, unit);
      }
    }
    return unit;
  }

 private:
  void Look(Part part, const Place& place, int64_t cols, Unit& unit) const {
    if (files_.quantisation() != nullptr) {
      for (const std::string& module : ModuleNames(naming_, part, place)) {
        const auto found =
            files_.quantisation()->Find(files_.tensors(), module, config_.hidden_size, cols);
        if (!found.ok() || !found->has_value()) continue;
        const kernels::DType form = (*found)->Form();
        if (kernels::BlockElements(form) <= unit.elements) continue;
        unit = {kernels::BlockElements(form),
                absl::StrCat("\"", module, "\" is quantised as ", kernels::DTypeName(form))};
      }
    }
    for (const std::string& name : TensorNames(naming_, files_.is_gguf(), part, place, "weight")) {
      const load::Tensor* blocks = files_.tensors().Find(name + "_blocks");
      if (blocks != nullptr && kMxfp4Elements > unit.elements) {
        unit = {kMxfp4Elements, absl::StrCat("\"", blocks->name, "\" is MXFP4")};
      }
      const load::Tensor* tensor = files_.tensors().Find(name);
      if (tensor == nullptr || !tensor->type.has_value()) continue;
      const int64_t elements = kernels::BlockElements(*tensor->type);
      if (elements <= unit.elements) continue;
      unit = {elements, absl::StrCat("\"", tensor->name, "\" is ", tensor->type_name)};
    }
  }

  const TensorNaming& naming_;
  const load::ModelConfig& config_;
  const load::ModelFiles& files_;
};

// An inner width that ranks share in whole blocks.
struct InnerWidth {
  int64_t size = 0;  // 0: the model has none of this kind
  const char* name = "";
  Unit unit;

  // Empty when `ranks` can share it.
  std::string WhyNot(int ranks) const {
    if (size == 0) return "";
    if (size % unit.elements != 0) {
      return absl::StrCat(name, " of ", size, " is not made of blocks of ", unit.elements, ", ",
                          unit.why);
    }
    if (size / unit.elements >= ranks) return "";
    return absl::StrCat(name, " of ", size, " has ", size / unit.elements, " blocks of ",
                        unit.elements, " for ", ranks, " ranks",
                        unit.why.empty() ? "" : absl::StrCat(", ", unit.why));
  }

  // As even as whole blocks permit. One rank has all: the builder reports what a damaged file
  // lacks.
  Range Cut(const Rank& at) const {
    if (at.ranks == 1) return {0, size};
    const int64_t blocks = size / unit.elements;
    const auto border = [&](int64_t rank) {
      return (blocks * rank + at.ranks - 1) / at.ranks * unit.elements;
    };
    return {border(at.rank), border(at.rank + 1) - border(at.rank)};
  }
};

// The properties of a model that its division depends on.
class Cutter {
 public:
  Cutter(const TensorNaming& naming, const load::ModelConfig& config, const load::ModelFiles& files)
      : config_(config),
        value_dim_(config.latent.rank > 0 ? config.latent.value_dim : config.head_dim) {
    const UnitFinder units(naming, config, files);
    output_ = units.Find(Part::kOutput, config.heads * value_dim_);
    const load::ExpertConfig& experts = config.experts;
    if (config.HasMlp() || config.gemma.full_head_dim > 0) {
      inner_ = {config.intermediate_size, "an intermediate size",
                units.Find(Part::kDown, config.intermediate_size)};
      wide_inner_ = inner_;
      wide_inner_.size *= 2;
    }
    if (experts.count > 0) {
      expert_ = {experts.width, "an intermediate size of experts",
                 units.Find(Part::kExpertDown, experts.width, experts.count)};
    }
    const load::RecurrentConfig& recurrent = config.recurrent;
    if (recurrent.Exists()) {
      recurrent_out_ = units.Find(Part::kRecurrentOut, RecurrentWidth());
    }
    if (experts.shared_width > 0) {
      shared_ = {experts.shared_width, "an intermediate size of shared experts",
                 units.Find(Part::kSharedDown, experts.shared_width)};
    }
  }

  // Empty when `ranks` can share the model; otherwise the obstacle.
  std::string WhyNot(int ranks, bool whole_experts) const {
    if (config_.heads % ranks != 0) {
      return absl::StrCat(config_.heads, " attention heads do not divide among ", ranks, " ranks");
    }
    if (config_.kv_heads % ranks != 0 && ranks % config_.kv_heads != 0) {
      return absl::StrCat(config_.kv_heads, " heads of keys and values neither divide among ",
                          ranks, " ranks nor ", ranks, " ranks among them");
    }
    const int full_kv_heads = config_.gemma.full_kv_heads;
    if (full_kv_heads > 0 && full_kv_heads % ranks != 0 && ranks % full_kv_heads != 0) {
      return absl::StrCat(full_kv_heads, " heads of keys and values of full layers neither divide ",
                          "among ", ranks, " ranks nor ", ranks, " ranks among them");
    }
    const int64_t width = config_.heads / ranks * value_dim_;
    if (width % output_.elements != 0) {
      return absl::StrCat("attention heads of ", value_dim_, ", ", config_.heads / ranks,
                          " for each of ", ranks, " ranks, do not end on a border of blocks of ",
                          output_.elements, ", ", output_.why);
    }
    if (std::string why = WhyNotRecurrent(ranks); !why.empty()) return why;
    for (const InnerWidth* width : {&inner_, &expert_, &shared_}) {
      if (whole_experts && width == &expert_) continue;
      if (std::string why = width->WhyNot(ranks); !why.empty()) return why;
    }
    if (whole_experts && config_.experts.count < ranks) {
      return absl::StrCat(config_.experts.count, " experts do not suffice for ", ranks, " ranks");
    }
    if (kernels::VocabularyOf(config_.vocab_size, ranks - 1, ranks).count < 1) {
      return absl::StrCat("a vocabulary of ", config_.vocab_size,
                          " leaves nothing for the last of ", ranks, " ranks");
    }
    return "";
  }

  // "1, 2 or 4"
  std::string CountsThatWork(bool whole_experts) const {
    std::vector<std::string> counts;
    for (int ranks = 1; ranks <= kernels::kMaxRanks && counts.size() < kMostNamed; ++ranks) {
      if (WhyNot(ranks, whole_experts).empty()) counts.push_back(absl::StrCat(ranks));
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
    shard.attended = {at.rank * shard.heads * value_dim_, shard.heads * value_dim_};
    shard.keys = {first_kv_head * head_dim, shard.kv_heads * head_dim};
    if (const load::GemmaForm& gemma = config_.gemma; gemma.full_head_dim > 0) {
      const int64_t full_dim = gemma.full_head_dim;
      shard.full_kv_heads = std::max(1, gemma.full_kv_heads / at.ranks);
      shard.full_queries = {at.rank * shard.heads * full_dim, shard.heads * full_dim};
      shard.full_keys = {int64_t{at.rank} * gemma.full_kv_heads / at.ranks * full_dim,
                         shard.full_kv_heads * full_dim};
      shard.wide_inner = wide_inner_.Cut(at);
    }
    const auto even = [&at](int64_t count) {
      return Range{count / at.ranks * at.rank, count / at.ranks};
    };
    shard.channels = even(config_.hidden_size);
    shard.key_heads = even(config_.recurrent.key_heads);
    shard.value_heads = even(config_.recurrent.value_heads);
    shard.inner = inner_.Cut(at);
    shard.experts = {0, config_.experts.count};
    shard.expert_inner = expert_.Cut(at);
    if (at.whole_experts) {
      const auto border = [&](int64_t rank) {
        return (config_.experts.count * rank + at.ranks - 1) / at.ranks;
      };
      shard.experts = {border(at.rank), border(at.rank + 1) - border(at.rank)};
      shard.expert_inner = {0, config_.experts.width};
    }
    shard.shared_inner = shared_.Cut(at);
    const kernels::VocabularySlice ids =
        kernels::VocabularyOf(config_.vocab_size, at.rank, at.ranks);
    shard.vocabulary = {ids.begin, ids.count};
    return shard;
  }

 private:
  // Of what the output projection of a recurrent layer reads.
  int64_t RecurrentWidth() const {
    const load::RecurrentConfig& recurrent = config_.recurrent;
    return recurrent.kind == load::RecurrentConfig::Kind::kShortConvolution
               ? config_.hidden_size
               : int64_t{recurrent.value_heads} * recurrent.value_dim;
  }
  std::string WhyNotRecurrent(int ranks) const {
    const load::RecurrentConfig& recurrent = config_.recurrent;
    if (!recurrent.Exists()) return "";
    const auto kind = recurrent.kind;
    const bool heads = kind != load::RecurrentConfig::Kind::kShortConvolution;
    const int count = heads ? recurrent.key_heads : config_.hidden_size;
    if (count % ranks != 0) {
      const bool delta = kind == load::RecurrentConfig::Kind::kGatedDelta;
      return absl::StrCat(count,
                          delta   ? " key heads"
                          : heads ? " groups"
                                  : " channels",
                          " of recurrent layers do not divide among ", ranks, " ranks");
    }
    if (recurrent.tiled && ranks > 1) {
      return "value heads of recurrent layers lie in GGUF's order, which ranks do not share";
    }
    if (RecurrentWidth() / ranks % recurrent_out_.elements == 0) return "";
    return absl::StrCat("recurrent layers of ", RecurrentWidth(), ", ", RecurrentWidth() / ranks,
                        " for each of ", ranks, " ranks, do not end on a border of blocks of ",
                        recurrent_out_.elements, ", ", recurrent_out_.why);
  }

  const load::ModelConfig& config_;
  const int64_t value_dim_;  // of a head's result
  Unit output_;
  Unit recurrent_out_;
  InnerWidth inner_;
  InnerWidth wide_inner_;
  InnerWidth expert_;
  InnerWidth shared_;
};

}  // namespace

absl::StatusOr<Shard> CutModel(const TensorNaming& naming, const load::ModelConfig& config,
                               const load::ModelFiles& files, const Rank& rank) {
  QUIRE_CHECK(rank.ranks >= 1 && rank.rank >= 0 && rank.rank < rank.ranks);
  const Cutter cutter(naming, config, files);
  if (rank.ranks == 1) return cutter.Cut(rank);
  if (rank.whole_experts && config.experts.count == 0) {
    return absl::InvalidArgumentError(
        absl::StrCat(files.path(),
                     ": has no experts for ranks to divide; leave out "
                     "--enable-expert-parallel"));
  }
  std::string why = cutter.WhyNot(rank.ranks, rank.whole_experts);
  if (rank.ranks > kernels::kMaxRanks) why = absl::StrCat(rank.ranks, " are too many ranks");
  if (why.empty()) return cutter.Cut(rank);
  const bool whole = !rank.whole_experts && config.experts.count > 0 &&
                     cutter.WhyNot(rank.ranks, /*whole_experts=*/true).empty();
  return absl::InvalidArgumentError(absl::StrCat(
      files.path(), ": ", why, "; use --tensor-parallel-size ",
      cutter.CountsThatWork(rank.whole_experts), whole ? ", or --enable-expert-parallel" : ""));
}

}  // namespace quire::model
