#include "cli/check/worker_plan.h"

#include <cstdio>

#include "cli/format.h"
#include "common/json/json.h"

namespace quire::cli {
namespace {

// Of the types of a GGUF file: what a line of the plan has room for.
constexpr size_t kLongestForms = 480;

// Reads members and remembers the first that is missing or of another type.
class Reader {
 public:
  explicit Reader(const json::Object& object) : object_(object) {}

  std::string Text(std::string_view name, size_t most = 256) {
    const json::Value* value = json::Find(object_, name);
    const json::String* text = value == nullptr ? nullptr : value->if_string();
    if (text == nullptr) return Missing(name), "";
    return PlainText(std::string(json::View(*text)), most);
  }
  double Number(std::string_view name) {
    const json::Value* value = json::Find(object_, name);
    const absl::StatusOr<double> number = value == nullptr
                                              ? absl::StatusOr<double>(InvalidArgument(""))
                                              : json::AsDouble(*value, name);
    if (!number.ok()) return Missing(name), 0;
    return *number;
  }
  int64_t Int(std::string_view name) {
    const json::Value* value = json::Find(object_, name);
    const absl::StatusOr<int64_t> number =
        value == nullptr ? absl::StatusOr<int64_t>(InvalidArgument("")) : json::AsInt(*value, name);
    if (!number.ok()) return Missing(name), 0;
    return *number;
  }
  bool Bool(std::string_view name) {
    const json::Value* value = json::Find(object_, name);
    if (value == nullptr || !value->is_bool()) return Missing(name), false;
    return value->get_bool();
  }
  const std::string& missing() const { return missing_; }

 private:
  void Missing(std::string_view name) {
    if (missing_.empty()) missing_ = std::string(name);
  }

  const json::Object& object_;
  std::string missing_;
};

void Append(std::string& out, const char* name, const std::string& value) {
  char line[512];
  std::snprintf(line, sizeof(line), "%-12s %s\n", name, value.c_str());
  out += line;
}

std::string SpeedText(const WorkerPlan& plan) {
  return BytesText(plan.read_bytes_per_second) + "/s read from memory" +
         (plan.bandwidth_is_measured ? ", measured here" : ", as given");
}

}  // namespace

absl::StatusOr<WorkerPlan> ParseWorkerPlan(const std::string& json_line) {
  QUIRE_ASSIGN_OR_RETURN(const json::Value value, json::Parse(json_line));
  const json::Object* object = value.if_object();
  if (object == nullptr) return InvalidArgument("quire-worker --plan: wrote no JSON object");
  Reader read(*object);
  WorkerPlan plan;
  plan.family = read.Text("family");
  plan.device = read.Text("device");
  plan.numerics = read.Text("numerics");
  if (json::Find(*object, "quantisation") != nullptr) {
    plan.quantisation = read.Text("quantisation", kLongestForms);
  }
  if (json::Find(*object, "expert_bytes") != nullptr) {
    plan.expert_bytes = read.Int("expert_bytes");
    plan.step_weight_bytes = read.Int("step_weight_bytes");
  }
  if (json::Find(*object, "cache_bytes_per_token") != nullptr) {
    plan.cache_bytes_per_token = read.Int("cache_bytes_per_token");
  }
  if (json::Find(*object, "head_bytes_per_token") != nullptr) {
    plan.head_bytes_per_token = read.Int("head_bytes_per_token");
  }
  if (json::Find(*object, "state_bytes") != nullptr) {
    plan.state_bytes = read.Int("state_bytes");
    plan.state_interval = read.Int("state_interval");
  }
  plan.context = read.Int("context");
  plan.max_model_len = read.Int("max_model_len");
  plan.max_num_seqs = read.Int("max_num_seqs");
  plan.block_size = read.Int("block_size");
  plan.usable_bytes = read.Int("usable_bytes");
  plan.weight_bytes = read.Int("weight_bytes");
  plan.workspace_bytes = read.Int("workspace_bytes");
  plan.adapter_bytes = read.Int("adapter_bytes");
  plan.draft_bytes = read.Int("draft_bytes");
  plan.kv_bytes = read.Int("kv_bytes");
  plan.constraint_bytes = read.Int("constraint_bytes");
  plan.free_bytes = read.Int("free_bytes");
  plan.page_count = read.Int("page_count");
  plan.largest_context = read.Int("largest_context");
  plan.largest_context_with_all_memory = read.Int("largest_context_with_all_memory");
  plan.largest_batch = read.Int("largest_batch");
  plan.largest_batch_with_all_memory = read.Int("largest_batch_with_all_memory");
  plan.read_bytes_per_second = read.Number("read_bytes_per_second");
  plan.limited_by_cgroup = read.Bool("limited_by_cgroup");
  plan.bandwidth_is_measured = read.Bool("bandwidth_is_measured");
  std::string missing = read.missing();
  const json::Value* fits = json::Find(*object, "fits");
  const json::Array* rows = fits == nullptr ? nullptr : fits->if_array();
  if (rows == nullptr && missing.empty()) missing = "fits";
  for (size_t i = 0; rows != nullptr && i < rows->size() && missing.empty(); ++i) {
    const json::Object* row = (*rows)[i].if_object();
    if (row == nullptr) return InvalidArgument("quire-worker --plan: fits must hold objects");
    Reader line(*row);
    FittingContext fit{line.Int("context"), line.Int("sequences"), 0, 0};
    missing = line.missing();
    if (json::Find(*row, "tokens_per_second") != nullptr) {
      fit.tokens_per_second = line.Number("tokens_per_second");
      fit.alone = line.Number("tokens_per_second_alone");
    }
    plan.fits.push_back(fit);
  }
  if (missing.empty()) return plan;
  return InvalidArgument("quire-worker --plan: wrote no usable '" + missing +
                         "'; are quire and quire-worker of the same version?");
}

std::string WorkerPlanText(const WorkerPlan& plan) {
  std::string out;
  Append(out, "model", plan.family + ", context of " + std::to_string(plan.context) + " tokens");
  Append(out, "device", plan.device);
  if (plan.read_bytes_per_second > 0) Append(out, "", SpeedText(plan));
  Append(out, "memory",
         BytesText(static_cast<double>(plan.usable_bytes)) + " usable" +
             (plan.limited_by_cgroup ? " (the cgroup's limit)" : ""));
  Append(out, "  weights", BytesText(static_cast<double>(plan.weight_bytes)));
  if (plan.expert_bytes > 0) {
    Append(out, "",
           BytesText(static_cast<double>(plan.expert_bytes)) + " of experts; one token reads " +
               BytesText(static_cast<double>(plan.step_weight_bytes)));
  }
  if (!plan.quantisation.empty()) Append(out, "", plan.quantisation);
  Append(out, "  workspace", BytesText(static_cast<double>(plan.workspace_bytes)));
  if (plan.adapter_bytes > 0) {
    Append(out, "  adapters", "at most " + BytesText(static_cast<double>(plan.adapter_bytes)));
  }
  if (plan.draft_bytes > 0) {
    Append(out, "  drafts",
           BytesText(static_cast<double>(plan.draft_bytes)) + " of what drafts, and its pages");
  }
  Append(out, "  kv cache",
         BytesText(static_cast<double>(plan.kv_bytes)) + ", " + std::to_string(plan.page_count) +
             " pages of " + std::to_string(plan.block_size) + " tokens");
  if (plan.head_bytes_per_token > 0) {
    Append(out, "",
           std::to_string(plan.cache_bytes_per_token) + " bytes of latents per token; keys and " +
               "values of all heads would take " + std::to_string(plan.head_bytes_per_token));
  }
  if (plan.state_bytes > 0) {
    Append(out, "",
           BytesText(static_cast<double>(plan.state_bytes)) +
               " of them a sequence's state; one is kept every " +
               std::to_string(plan.state_interval) + " tokens");
  }
  if (plan.constraint_bytes > 0) {
    Append(out, "  grammars", "at most " + BytesText(static_cast<double>(plan.constraint_bytes)));
  }
  Append(out, "  free", BytesText(static_cast<double>(plan.free_bytes)));
  out += "\n   context  sequences  tokens/s of one  of all\n";
  for (const FittingContext& fit : plan.fits) {
    char line[128];
    const bool known = fit.tokens_per_second > 0;
    std::snprintf(line, sizeof(line), "%10lld %10lld %16s %7s\n",
                  static_cast<long long>(fit.context), static_cast<long long>(fit.sequences),
                  known ? NumberText(fit.alone).c_str() : "-",
                  known ? CountText(fit.tokens_per_second).c_str() : "-");
    out += line;
  }
  out += "Tokens/s are bounds from above: what reading weights and keys once a step allows.\n\n";
  Append(out, "largest",
         "context " + std::to_string(plan.largest_context) + ", batch " +
             std::to_string(plan.largest_batch) + " of " + std::to_string(plan.max_model_len) +
             " tokens");
  const bool more = plan.largest_context_with_all_memory > plan.largest_context ||
                    plan.largest_batch_with_all_memory > plan.largest_batch;
  if (more && plan.free_bytes > 0) {
    Append(out, "",
           "with --kv-cache-memory-bytes " + std::to_string(plan.kv_bytes + plan.free_bytes) +
               ": context " + std::to_string(plan.largest_context_with_all_memory) + ", batch " +
               std::to_string(plan.largest_batch_with_all_memory));
  }
  return out;
}

}  // namespace quire::cli
