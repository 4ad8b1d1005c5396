// `quire doctor`: checks machine, ports, limits, model files and peers, and says what to do.
#include <cstdio>

#include "cli/check/doctor_checks.h"
#include "cli/commands.h"
#include "cli/format.h"
#include "cli/model_names.h"
#include "common/config/run_program.h"

namespace quire::cli {
namespace {

struct DoctorArguments {
  std::string model = "demo";
  std::vector<std::string> folders, peers;
  std::string host = "127.0.0.1";
  int32_t port = 8000;
  int32_t grpc_port = 8001;
  bool json = false;
  AskOptions server;
};

void AddFlags(DoctorArguments& doctor, config::Schema& schema) {
  schema.AddPositional(
      {.name = "MODEL",
       .help = "The model to look at: a name, a Hugging Face folder, or a .gguf file. [demo]",
       .target = &doctor.model},
      false);
  schema.Group("Machine");
  schema.Add(
      {.name = "models-dir", .help = "Further folder of named models.", .target = &doctor.folders});
  schema.Add({.name = "host", .help = "Address that is to serve.", .target = &doctor.host});
  schema.Add({.name = "port",
              .help = "Port that is to serve HTTP.",
              .target = &doctor.port,
              .min = 1,
              .max = 65535});
  schema.Add({.name = "grpc-port",
              .help = "Port that is to serve gRPC.",
              .target = &doctor.grpc_port,
              .min = 1,
              .max = 65535});
  schema.Add({.name = "json", .help = "Writes JSON.", .target = &doctor.json});
  schema.Group("Others");
  schema.Add({.name = "worker",
              .help = "A worker that must be reachable from here.",
              .target = &doctor.peers,
              .value_name = "HOST:PORT"});
  AddServerFlags(doctor.server, schema, "none");
}

Finding CheckModel(const DoctorArguments& doctor) {
  const auto bad = [](std::string what, std::string remedy) {
    return Finding{"model", Verdict::kBad, std::move(what), std::move(remedy)};
  };
  const absl::StatusOr<ResolvedModel> model = ResolveModel(doctor.model, doctor.folders);
  if (!model.ok()) {
    return bad(StatusMessage(model.status()), "quire models lists those that stand here");
  }
  const std::string worker = config::SiblingPath("quire-worker");
  // Its message about a model that it cannot use goes to standard error: read that as well.
  const absl::StatusOr<config::ProgramOutput> output = config::OutputOf(
      worker, {"--plan", "--plan-bandwidth=1B", "--log-level=off", "--model=" + model->path}, {},
      config::StandardError::kTaken);
  if (!output.ok()) return bad(StatusMessage(output.status()), "");
  if (output->exit_code != 0) {
    return bad(PlainText(output->text.substr(0, output->text.find('\n')), 1024),
               "quire plan " + doctor.model + " with other settings shows what would fit");
  }
  const absl::StatusOr<WorkerPlan> plan = ParseWorkerPlan(output->text);
  if (!plan.ok()) return bad(StatusMessage(plan.status()), "install programs of one version");
  return JudgePlan(doctor.model, *plan);
}

}  // namespace

int RunDoctor(const CommandInputs& inputs) {
  DoctorArguments doctor;
  doctor.server.url.clear();
  config::Schema schema(
      "quire doctor",
      "Looks whether this machine can serve a model: programs, processor, memory, "
      "limits, GPUs, ports, model files, and others that must be reachable. Exits with "
      "1 when something is bad.");
  AddFlags(doctor, schema);
  if (const std::optional<int> code = Begin(inputs, schema, "doctor")) return *code;
  TakeKey(inputs.environment, doctor.server);
  for (const std::string& folder : ModelFolders(config::ExecutablePath())) {
    doctor.folders.push_back(folder);
  }
  std::vector<Finding> findings = {CheckPrograms()};
  const Machine machine = ReadMachine("/");
  for (Finding& finding : JudgeMachine(machine)) findings.push_back(std::move(finding));
  for (Finding& finding : CheckGpus({}, machine.gpus)) findings.push_back(std::move(finding));
  findings.push_back(CheckPort(doctor.host, doctor.port, "--port"));
  findings.push_back(CheckPort(doctor.host, doctor.grpc_port, "--grpc-port"));
  findings.push_back(CheckModel(doctor));
  for (const std::string& peer : doctor.peers) {
    if (!*inputs.interrupted) findings.push_back(CheckPeer(peer, *inputs.interrupted));
  }
  if (!doctor.server.url.empty() && !*inputs.interrupted) {
    for (Finding& finding : CheckServer(doctor.server, *inputs.interrupted)) {
      findings.push_back(std::move(finding));
    }
  }
  if (*inputs.interrupted) return 130;
  const std::string text = doctor.json ? FindingsJson(findings) + "\n" : FindingsText(findings);
  std::fputs(text.c_str(), stdout);
  for (const Finding& finding : findings) {
    if (finding.verdict == Verdict::kBad) return 1;
  }
  return 0;
}

}  // namespace quire::cli
