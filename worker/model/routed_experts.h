// Mixtures of experts as DeepSeek's configuration describes them, which GLM-4.5 and others share:
// groups, a bias for the choice, shared experts without a gate, first layers without any.
//
// Pure functions; used once per model, on the loading thread.
#pragma once

#include <cstdint>
#include <string_view>

#include "worker/load/model_config.h"
#include "worker/model/json_config.h"

namespace quire::model {

// What files may leave out, by family.
struct RoutedForm {
  std::string_view scoring = "sigmoid";  // scoring_func: or softmax
  // topk_method: greedy, group_limited_greedy (a group is as good as its best expert) or noaux_tc
  // (as its best two, with a bias for the choice).
  std::string_view method = "noaux_tc";
  bool renormalise = true;  // norm_topk_prob
  double scale = 1.0;       // routed_scaling_factor
  int64_t shared = 1;       // n_shared_experts
  int64_t dense = 1;        // first_k_dense_replace
};

// Fails, by name, for what the file asks for and Quire does not compute.
void ReadRoutedExperts(JsonReader& reader, load::ModelConfig& config, const RoutedForm& form);

}  // namespace quire::model
