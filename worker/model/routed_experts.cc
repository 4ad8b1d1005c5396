#include "worker/model/routed_experts.h"

#include <string>

#include "absl/strings/str_cat.h"

namespace quire::model {
namespace {

using Scores = kernels::RoutingRule::Scores;

void ReadScores(JsonReader& reader, const RoutedForm& form, kernels::RoutingRule& rule) {
  const std::string scoring = reader.String("scoring_func", form.scoring);
  if (scoring == "sigmoid") {
    rule.scores = Scores::kSigmoid;
  } else if (scoring == "softmax") {
    rule.scores = Scores::kSoftmax;
  } else {
    reader.Fail(absl::StrCat("scoring_func \"", scoring,
                             "\" is not served; served are sigmoid and softmax"));
  }
}

void ReadGroups(JsonReader& reader, const RoutedForm& form, load::ExpertConfig& experts) {
  const std::string method = reader.String("topk_method", form.method);
  if (method != "greedy" && method != "group_limited_greedy" && method != "noaux_tc") {
    return reader.Fail(
        absl::StrCat("topk_method \"", method,
                     "\" is not served; served are greedy, group_limited_greedy and noaux_tc"));
  }
  experts.selection_bias = method == "noaux_tc";
  const int64_t groups = method == "greedy" ? 1 : reader.Int("n_group", 1);
  if (groups == 1) return;
  kernels::RoutingRule& rule = experts.rule;
  rule.groups = static_cast<int>(groups);
  rule.groups_used = static_cast<int>(reader.RequiredInt("topk_group"));
  rule.best_of_group = experts.selection_bias ? 2 : 1;
}

void ReadLayers(JsonReader& reader, const RoutedForm& form, load::ModelConfig& config) {
  const int64_t dense = reader.Int("first_k_dense_replace", form.dense);
  const int64_t every = reader.Int("moe_layer_freq", 1);
  if (dense < 0) return reader.Fail("first_k_dense_replace must be at least 0");
  if (every < 1) return reader.Fail("moe_layer_freq must be at least 1");
  if (config.layers < 1 || config.layers > load::kMaxLayers) return;  // CheckModelConfig refuses it
  for (int i = 0; i < config.layers; ++i) {
    config.experts.layers.push_back(i >= dense && i % every == 0);
  }
}

}  // namespace

void ReadRoutedExperts(JsonReader& reader, load::ModelConfig& config, const RoutedForm& form) {
  load::ExpertConfig& experts = config.experts;
  experts.count = static_cast<int>(reader.RequiredInt("n_routed_experts"));
  if (experts.count < 1) return reader.Fail("n_routed_experts must be at least 1");
  experts.width = static_cast<int>(reader.RequiredInt("moe_intermediate_size"));
  const int64_t shared = reader.Int("n_shared_experts", form.shared);
  if (shared < 0 || shared > kernels::kMaxExperts) {
    return reader.Fail(
        absl::StrCat("n_shared_experts is ", shared, ", allowed are 0 to ", kernels::kMaxExperts));
  }
  if (experts.width < 1 || experts.width > load::kMaxWidth) {
    return reader.Fail(absl::StrCat("moe_intermediate_size is ", experts.width,
                                    ", allowed are 1 to ", load::kMaxWidth));
  }
  experts.shared_width = static_cast<int>(shared * experts.width);
  experts.shared_gated = false;
  experts.rule.chosen = static_cast<int>(reader.RequiredInt("num_experts_per_tok"));
  experts.rule.renormalise = reader.Bool("norm_topk_prob", form.renormalise);
  experts.rule.scale = static_cast<float>(reader.Double("routed_scaling_factor", form.scale));
  ReadScores(reader, form, experts.rule);
  ReadGroups(reader, form, experts);
  ReadLayers(reader, form, config);
}

}  // namespace quire::model
