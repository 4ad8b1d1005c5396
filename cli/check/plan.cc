// `quire plan`: what a model would need, before anything is loaded. quire-worker computes it; the
// GPU or the memory of the plan need not be present.
#include <algorithm>
#include <cstdio>
#include <deque>

#include "cli/check/worker_plan.h"
#include "cli/commands.h"
#include "cli/format.h"
#include "cli/manual/descriptions.h"
#include "cli/models/find_model.h"
#include "common/config/run_program.h"

namespace quire::cli {
namespace {

// Flags of the worker that change its plan, described in the worker's own words.
constexpr std::string_view kForwarded[] = {"allowed-model-root",
                                           "max-model-len",
                                           "max-num-seqs",
                                           "max-num-batched-tokens",
                                           "block-size",
                                           "kv-cache-memory-bytes",
                                           "kv-cache-dtype",
                                           "dequantize-weights",
                                           "batch-invariant",
                                           "device",
                                           "threads",
                                           "cpu-isa",
                                           "activation-dtype",
                                           "dtype",
                                           "tensor-parallel-size",
                                           "enable-expert-parallel",
                                           "rank-backend",
                                           "enable-lora",
                                           "max-loras",
                                           "max-lora-rank",
                                           "speculative-config"};

struct ForwardedFlag {
  std::string name;
  std::string value;                     // empty: not given
  std::vector<std::string> values = {};  // of one that is repeatable
  bool is_switch = false;
  bool on = false;  // of a switch
  bool by_default = false;
};

struct PlanArguments {
  std::string model = "demo";
  std::vector<std::string> folders;
  std::string memory, bandwidth;
  int32_t workers = 1;
  bool json = false;
};

void AddFlags(PlanArguments& plan, config::Schema& schema) {
  schema.AddPositional(
      {.name = "MODEL",
       .help = "A name that `quire list` shows, a Hugging Face folder, or a .gguf file. [demo]",
       .target = &plan.model},
      false);
  schema.Group("Plan");
  schema.Add({.name = "memory",
              .help = "Memory of the machine that is planned for.",
              .target = &plan.memory,
              .value_name = "SIZE",
              .default_text = "what this machine offers"});
  schema.Add({.name = "bandwidth",
              .help = "Bytes that that machine reads from memory in a second.",
              .target = &plan.bandwidth,
              .value_name = "SIZE",
              .default_text = "measured here"});
  schema.Add({.name = "workers",
              .help = "Workers that share the machine.",
              .target = &plan.workers,
              .min = 1,
              .max = 1024});
  schema.Add(
      {.name = "models-dir", .help = "Further folder of named models.", .target = &plan.folders});
  schema.Add({.name = "json", .help = "Writes JSON.", .target = &plan.json});
}

void AddForwarded(const config::Description& worker, std::deque<ForwardedFlag>& forwarded,
                  config::Schema& schema) {
  schema.Group("Workers");
  for (const config::FlagDescription& flag : worker.flags) {
    if (std::find(std::begin(kForwarded), std::end(kForwarded), flag.name) == std::end(kForwarded))
      continue;
    ForwardedFlag& kept = forwarded.emplace_back(ForwardedFlag{.name = flag.name, .value = ""});
    kept.is_switch = flag.value_name.empty();
    if (kept.is_switch) {
      kept.on = kept.by_default = flag.default_text == "true";
      schema.Add({.name = flag.name, .help = flag.help, .target = &kept.on});
      continue;
    }
    config::Target target = &kept.value;
    if (flag.repeatable) target = &kept.values;
    schema.Add({.name = flag.name,
                .help = flag.help,
                .target = target,
                .value_name = flag.value_name,
                .choices = flag.choices,
                .default_text = flag.default_text});
  }
}

}  // namespace

int RunPlan(const CommandInputs& inputs) {
  const std::string worker = config::SiblingPath("quire-worker");
  const absl::StatusOr<config::Description> description = DescribeProgram(worker);
  if (!description.ok()) return Failed("plan", description.status());
  PlanArguments plan;
  std::deque<ForwardedFlag> forwarded;
  config::Schema schema(
      "quire plan",
      "Reports what a model takes to serve before anything is loaded: memory, the "
      "largest context and batch that fit, and how fast memory lets it decode.");
  AddFlags(plan, schema);
  AddForwarded(*description, forwarded, schema);
  if (const std::optional<int> code = Begin(inputs, schema, "plan")) return *code;
  const std::atomic<bool> never = false;
  const absl::StatusOr<ModelFinder> finder =
      MakeFinder(inputs.environment, plan.folders, "", never);
  if (!finder.ok()) return Failed("plan", finder.status());
  const absl::StatusOr<ResolvedModel> model = FindHere(*finder, plan.model);
  if (!model.ok()) return Failed("plan", model.status());
  std::vector<std::string> args = {"--plan", "--log-level=error", "--model=" + model->path,
                                   "--workers-on-host=" + std::to_string(plan.workers)};
  for (const ForwardedFlag& flag : forwarded) {
    if (!flag.value.empty()) args.push_back("--" + flag.name + "=" + flag.value);
    for (const std::string& value : flag.values) args.push_back("--" + flag.name + "=" + value);
    if (flag.is_switch && flag.on != flag.by_default) {
      args.push_back((flag.on ? "--" : "--no-") + flag.name);
    }
  }
  if (!plan.memory.empty()) args.push_back("--plan-memory=" + plan.memory);
  if (!plan.bandwidth.empty()) args.push_back("--plan-bandwidth=" + plan.bandwidth);
  const absl::StatusOr<config::ProgramOutput> output = config::OutputOf(worker, args, {});
  if (!output.ok()) return Failed("plan", output.status());
  if (output->exit_code != 0) return output->exit_code;  // the worker has printed the reason
  if (plan.json) {
    Show(stdout, output->text);
    return 0;
  }
  const absl::StatusOr<WorkerPlan> told = ParseWorkerPlan(output->text);
  if (!told.ok()) return Failed("plan", absl::InternalError(told.status().message()));
  std::fputs(WorkerPlanText(*told).c_str(), stdout);
  std::printf("serve it     quire serve %s\n", plan.model.c_str());
  return 0;
}

}  // namespace quire::cli
