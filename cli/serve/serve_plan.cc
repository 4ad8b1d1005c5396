#include "cli/serve/serve_plan.h"

#include <algorithm>
#include <deque>
#include <string_view>

#include "cli/serve/vllm_flags.h"
#include "common/check.h"
#include "common/config/describe.h"
#include "common/host_port.h"
#include "common/serve/lines.h"

namespace quire::cli {
namespace {

// Chosen by serve itself; setting them would break what serve promises. Between its own children,
// on loopback, it needs no certificates: the flags for certificates are for clients.
constexpr std::string_view kOwnOfRouter[] = {"worker",
                                             "worker-metrics",
                                             "worker-file",
                                             "worker-dns",
                                             "worker-k8s",
                                             "ready-fd",
                                             "serve-fd",
                                             "check",
                                             "check-ports",
                                             "config",
                                             "worker-tls-ca-file",
                                             "worker-tls-cert-file",
                                             "worker-tls-key-file",
                                             "worker-tls-name"};
constexpr std::string_view kOwnOfWorker[] = {
    "max-memory",    "model",           "listen",      "http-port",      "ready-fd",
    "config",        "workers-on-host", "plan",        "plan-memory",    "plan-bandwidth",
    "tls-cert-file", "tls-key-file",    "tls-ca-file", "tls-router-name"};

template <size_t N>
bool Contains(const std::string_view (&names)[N], std::string_view name) {
  return std::find(std::begin(names), std::end(names), name) != std::end(names);
}

// One flag of a child, with the place of its value.
struct Forwarded {
  config::FlagDescription flag;
  bool to_router = false;
  bool to_worker = false;
  std::vector<std::string> values;
  std::string value;
  bool on = false;
};

// Ordered as the children list them, the router's first; a flag that both have goes to both.
std::deque<Forwarded> Gather(const ServeInputs& inputs) {
  std::deque<Forwarded> all;
  for (const config::FlagDescription& flag : inputs.router.flags) {
    if (Contains(kOwnOfRouter, flag.name)) continue;
    all.push_back({});
    all.back().flag = flag;
    all.back().to_router = true;
  }
  for (const config::FlagDescription& flag : inputs.worker.flags) {
    if (Contains(kOwnOfWorker, flag.name)) continue;
    const auto same = std::find_if(all.begin(), all.end(), [&](const Forwarded& other) {
      return other.flag.name == flag.name;
    });
    if (same != all.end()) {
      same->to_worker = true;
      continue;
    }
    all.push_back({});
    all.back().flag = flag;
    all.back().to_worker = true;
  }
  return all;
}

void AddToSchema(Forwarded& f, config::Schema& schema) {
  config::Flag flag;
  flag.name = f.flag.name;
  flag.help = f.flag.help;
  flag.value_name = f.flag.value_name;
  flag.default_text = f.flag.default_text;
  flag.choices = f.flag.choices;
  flag.secret = f.flag.secret;
  if (f.flag.value_name.empty()) {
    flag.target = &f.on;
  } else if (f.flag.repeatable) {
    flag.target = &f.values;
  } else {
    flag.target = &f.value;
  }
  schema.Add(std::move(flag));
}

// An empty key is never ignored: an operator who meant to require a key would then require none.
absl::Status IsEmpty(const std::string& flag) {
  return InvalidArgument("--" + flag + ": is empty; give a value, or leave the flag and " +
                         config::VariableName(flag) + " out");
}

// Commas separate the items of lists there.
absl::Status AppendVariable(const Forwarded& f, const config::ParseResult& result,
                            std::vector<std::string>& variables) {
  if (!result.IsSet(f.flag.name)) return absl::OkStatus();
  std::string variable = config::VariableName(f.flag.name) + "=";
  const size_t start = variable.size();
  for (const std::string& value : f.flag.repeatable ? f.values : std::vector{f.value}) {
    if (f.flag.repeatable && value.find(',') != std::string::npos) {
      return InvalidArgument("--" + f.flag.name +
                             ": a value has a comma in it, and commas separate values in "
                             "the environment; use one without");
    }
    if (value.empty()) return IsEmpty(f.flag.name);
    if (variable.size() > start) variable += ',';
    variable += value;
  }
  if (variable.size() == start) return IsEmpty(f.flag.name);
  variables.push_back(std::move(variable));
  return absl::OkStatus();
}

// "--name=value" for every value of a setting that somebody gave.
void AppendArguments(const Forwarded& f, const config::ParseResult& result,
                     std::vector<std::string>& args) {
  if (!result.IsSet(f.flag.name)) return;
  const std::string start = "--" + f.flag.name;
  if (f.flag.value_name.empty()) {
    args.push_back(f.on ? start : "--no-" + f.flag.name);
  } else if (f.flag.repeatable) {
    for (const std::string& value : f.values) args.push_back(start + "=" + value);
  } else {
    args.push_back(start + "=" + f.value);
  }
}

absl::Status HandOn(const std::deque<Forwarded>& forwarded, const config::ParseResult& result,
                    ServePlan& plan) {
  for (const Forwarded& f : forwarded) {
    if (f.flag.secret) {
      // Passed in the environment, which only the user of the process can read. A single one may be
      // empty, which means none; an empty one in a list of keys would let everyone in.
      if (!f.flag.repeatable && f.value.empty()) continue;
      std::vector<std::string> variables;
      QUIRE_RETURN_IF_ERROR(AppendVariable(f, result, variables));
      const auto tell = [&variables](std::vector<std::string>& child) {
        child.insert(child.end(), variables.begin(), variables.end());
      };
      if (f.to_router) tell(plan.router_environment);
      if (f.to_worker) tell(plan.worker_environment);
      continue;
    }
    if (f.to_router) AppendArguments(f, result, plan.router_args);
    if (f.to_worker) AppendArguments(f, result, plan.worker_args);
  }
  return absl::OkStatus();
}

// The arguments, with vLLM's flags translated to ours.
VllmArguments Translate(const ServeInputs& inputs, const std::deque<Forwarded>& forwarded) {
  const auto additional = inputs.environment.find("VLLM_ADDITIONAL_ARGS");
  return FromVllm(inputs.args,
                  additional == inputs.environment.end() ? std::string_view() : additional->second,
                  [&](std::string_view name) {
                    return std::any_of(forwarded.begin(), forwarded.end(),
                                       [&](const Forwarded& f) { return f.flag.name == name; });
                  });
}

// Other machines that serve the same model with `quire serve`: this router uses their workers too,
// and theirs use this worker.
struct Peers {
  std::string dns, address, ca_file, cert_file, key_file;
};

void AddPeerFlags(config::Schema& schema, Peers& peers) {
  schema.Group("Peers");
  const auto add = [&schema](const char* name, const char* help, std::string& target,
                             const char* value_name) {
    config::Flag flag;
    flag.name = name;
    flag.help = help;
    flag.target = &target;
    flag.value_name = value_name;
    flag.default_text = "none";
    schema.Add(flag);
  };
  add("peer-worker-dns",
      "A name of which every address has such a worker, this machine's among them: the router "
      "uses them all, and answers go on elsewhere when one is lost.",
      peers.dns, "NAME:PORT");
  add("peer-address", "This machine's address under that name, such as a pod's own.", peers.address,
      "ADDRESS");
  add("peer-tls-ca-file", "PEM file with the authorities of the peers' certificates.",
      peers.ca_file, "FILE");
  add("peer-tls-cert-file",
      "PEM file with the certificate to show peers; its subject alternative names are quire-worker "
      "and quire-router.",
      peers.cert_file, "FILE");
  add("peer-tls-key-file", "PEM file with that certificate's private key.", peers.key_file, "FILE");
}

absl::Status PlanPeers(const Peers& peers, ServePlan& plan) {
  const bool any_file =
      !peers.ca_file.empty() || !peers.cert_file.empty() || !peers.key_file.empty();
  if (peers.dns.empty()) {
    if (!any_file && peers.address.empty()) return absl::OkStatus();
    return InvalidArgument("--peer-worker-dns is missing: the other --peer- flags go with it");
  }
  if (peers.ca_file.empty() || peers.cert_file.empty() || peers.key_file.empty()) {
    return InvalidArgument(
        "--peer-tls-ca-file, --peer-tls-cert-file, --peer-tls-key-file: peers show each other "
        "certificates, so all three are needed with --peer-worker-dns");
  }
  if (peers.address.empty()) {
    return InvalidArgument(
        "--peer-address is missing: with --peer-worker-dns peers reach this machine's worker "
        "there; in a pod it is status.podIP");
  }
  if (plan.workers != 1) {
    return InvalidArgument("--workers: must be 1 with --peer-worker-dns, is " +
                           std::to_string(plan.workers));
  }
  const absl::StatusOr<HostPort> dns = ParseHostPort(peers.dns);
  if (!dns.ok()) return Annotate(dns.status(), "--peer-worker-dns");
  plan.worker_listen = JoinHostPort(peers.address, dns->port);
  // The name's addresses include this machine's own worker: a worker that is named twice is one
  // worker.
  plan.router_args.insert(
      plan.router_args.end(),
      {"--worker-dns=" + peers.dns, "--worker-tls-ca-file=" + peers.ca_file,
       "--worker-tls-cert-file=" + peers.cert_file, "--worker-tls-key-file=" + peers.key_file});
  plan.worker_args.insert(plan.worker_args.end(),
                          {"--tls-ca-file=" + peers.ca_file, "--tls-cert-file=" + peers.cert_file,
                           "--tls-key-file=" + peers.key_file});
  return absl::OkStatus();
}

// What is to be served, as it was named.
struct Named {
  std::vector<std::string> models;
  std::vector<std::string> folders;
};

void AddServingFlags(Named& named, ServePlan& plan, config::Schema& schema) {
  config::Flag positional;
  positional.name = "MODEL";
  positional.help =
      "A name that `quire list` or `quire pull` shows, hf:ORG/REPO[:REVISION][/FILE.gguf] or any "
      "other name that `quire pull` takes, a Hugging Face folder, or a .gguf file. What is not "
      "here is pulled. One stays loaded; of several, the first is loaded at once and each other "
      "one "
      "when it is asked for. [demo]";
  positional.target = &named.models;
  schema.AddPositional(positional, false);
  schema.Group("Serving");
  config::Flag workers;
  workers.name = "workers";
  workers.help = "Worker processes; threads and memory are shared out among them.";
  workers.target = &plan.workers;
  workers.min = 1;
  workers.max = kMaxWorkers;
  schema.Add(workers);
  config::Flag models_dir;
  models_dir.name = "models-dir";
  models_dir.help = "Folder of named models: each of them is loaded when it is asked for.";
  models_dir.target = &named.folders;
  schema.Add(models_dir);
}

absl::Status AddModel(ResolvedModel model, ServePlan& plan) {
  const bool known = std::any_of(plan.models.begin(), plan.models.end(), [&](const auto& one) {
    return one.served_name == model.served_name;
  });
  if (known) return absl::OkStatus();
  if (model.served_name.size() > serve::kMaxModelNameBytes) {
    return InvalidArgument("MODEL: the name of " + model.path + " is too long");
  }
  if (plan.models.size() == serve::kMaxModels) {
    return InvalidArgument("MODEL, --models-dir: at most " + std::to_string(serve::kMaxModels) +
                           " models are served");
  }
  plan.models.push_back(std::move(model));
  return absl::OkStatus();
}

absl::Status FindModels(const ServeInputs& inputs, const Named& named, ServePlan& plan) {
  std::vector<std::string> names = named.models;
  if (names.empty() && named.folders.empty()) names = {"demo"};
  for (const std::string& name : names) {
    absl::StatusOr<ResolvedModel> model;
    if (inputs.find_model) {
      model = inputs.find_model(name, named.folders);
    } else {
      std::vector<std::string> folders = named.folders;
      folders.insert(folders.end(), inputs.model_folders.begin(), inputs.model_folders.end());
      model = ResolveModel(name, folders);
    }
    if (!model.ok()) return model.status();
    const size_t before = plan.models.size();
    QUIRE_RETURN_IF_ERROR(AddModel(*std::move(model), plan));
    if (plan.models.size() == before) {
      return InvalidArgument(
          "MODEL: '" + name +
          "' has the name of another one that is given; `quire cp` gives it one of its own");
    }
  }
  plan.load_first = !names.empty();
  plan.required = names.size() == 1;
  for (const NamedModel& model : ListModels(named.folders)) {
    QUIRE_RETURN_IF_ERROR(AddModel({model.path, model.name}, plan));
  }
  if (!plan.models.empty()) return absl::OkStatus();
  return InvalidArgument("--models-dir: " + named.folders.front() +
                         " holds no model; a model there is a folder with a config.json and "
                         "safetensors, or with one .gguf file");
}

// What goes with one model that stays alone.
absl::Status CheckSeveral(const config::ParseResult& result, ServePlan& plan) {
  plan.names_by_flag = result.IsSet("served-model-name");
  if (plan.names_by_flag && plan.models.size() > 1) {
    return InvalidArgument(
        "--served-model-name: goes with one MODEL; `quire cp` gives a model another name");
  }
  for (const std::string flag : {"--lora-modules", "--lora-dir"}) {
    const bool given =
        std::any_of(plan.worker_args.begin(), plan.worker_args.end(),
                    [&flag](const std::string& arg) { return arg.starts_with(flag + "="); });
    if (!given || plan.models.size() == 1) continue;
    return InvalidArgument(flag + ": adapters go with one MODEL; name that one alone");
  }
  if (plan.workers > 1 && plan.models.size() > 1) {
    return InvalidArgument(
        "--workers: several models have one worker each; leave it out, or serve one MODEL");
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<ServePlan> PlanServe(const ServeInputs& inputs) {
  config::Schema schema("quire serve",
                        "Serves a model on this machine: a router and its workers, supervised.");
  ServePlan plan;
  Named named;
  AddServingFlags(named, plan, schema);
  Peers peers;
  AddPeerFlags(schema, peers);
  std::deque<Forwarded> forwarded = Gather(inputs);
  schema.Group("Router");
  for (Forwarded& f : forwarded) {
    if (f.to_router) AddToSchema(f, schema);
  }
  schema.Group("Workers");
  for (Forwarded& f : forwarded) {
    if (!f.to_router) AddToSchema(f, schema);
  }
  VllmArguments given = Translate(inputs, forwarded);
  if (!given.refusal.empty()) return InvalidArgument(given.refusal);
  QUIRE_ASSIGN_OR_RETURN(const config::ParseResult result,
                         schema.Parse(given.args, inputs.environment));
  if (std::optional<std::string> answer = config::AnswerText(schema, result)) {
    plan.answer = std::move(answer);
    return plan;
  }
  plan.warnings = result.warnings;
  plan.warnings.insert(plan.warnings.end(), given.warnings.begin(), given.warnings.end());
  QUIRE_RETURN_IF_ERROR(FindModels(inputs, named, plan));
  QUIRE_RETURN_IF_ERROR(HandOn(forwarded, result, plan));
  QUIRE_RETURN_IF_ERROR(CheckSeveral(result, plan));
  QUIRE_RETURN_IF_ERROR(PlanPeers(peers, plan));
  return plan;
}

}  // namespace quire::cli
