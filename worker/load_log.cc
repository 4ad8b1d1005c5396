#include "worker/load_log.h"

namespace quire {

void LogWeightForms(const LoadedForms& forms, Logger& log) {
  if (const std::string text = model::QuantisationText(forms.model, forms.rounded); !text.empty()) {
    log.Info(forms.model.files->is_gguf() ? "GGUF file" : "quantised checkpoint",
             {{"format", text}});
  }
  const kernels::WeightForms weights = forms.backend.FormsOfWeights(forms.model.program);
  if (weights.expanded > 0) {
    log.Info("quantised weights", {{"kept", weights.quantised},
                                   {"expanded", weights.expanded},
                                   {"why", weights.expanded_why}});
  } else if (weights.quantised > 0) {
    log.Info("quantised weights", {{"kept", weights.quantised}, {"expanded", 0}});
  } else if (forms.config.dequantize_weights) {
    log.Info("--dequantize-weights: the model has no quantised weights", {});
  }
}

void LogMemoryPlan(const load::MemoryPlan& plan, int32_t max_model_len, Logger& log) {
  log.Info("memory plan", {{"usable_bytes", plan.usable_bytes},
                           {"limited_by_cgroup", plan.limited_by_cgroup},
                           {"weight_bytes", plan.weight_bytes},
                           {"workspace_bytes", plan.workspace_bytes},
                           {"adapter_bytes", plan.adapter_bytes},
                           {"draft_bytes", plan.draft_bytes},
                           {"kv_bytes", plan.kv_bytes},
                           {"constraint_bytes", plan.constraint_bytes},
                           {"free_bytes", plan.free_bytes},
                           {"pages", plan.page_count},
                           {"max_model_len", max_model_len}});
}

}  // namespace quire
