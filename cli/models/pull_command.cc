// `quire pull`, `quire cp` and `quire rm`: they add and remove models of this machine.
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>

#include "cli/check/doctor_checks.h"
#include "cli/commands.h"
#include "cli/format.h"
#include "cli/models/find_model.h"
#include "cli/models/progress_bar.h"
#include "common/config/common_flags.h"
#include "common/serve/lines.h"

namespace quire::cli {
namespace {

struct PullArguments {
  std::string model;
  std::string catalogue;
  std::vector<std::string> folders;
  std::string bandwidth;
  int32_t connections = 8;
  int32_t ready_fd = -1;
  bool for_client = false;
  bool for_worker = false;
  int64_t max_bytes = 0;
};

constexpr int64_t kTellEveryMs = 200;

// Reports the progress of a pull or a removal to a supervisor that asked for it: lines of
// common/serve/lines.h.
class Teller {
 public:
  explicit Teller(int descriptor) : descriptor_(descriptor) {}

  bool on() const { return descriptor_ >= 0; }
  void Progress(int64_t here, int64_t total) {
    const int64_t now = std::chrono::duration_cast<std::chrono::milliseconds>(
                            std::chrono::steady_clock::now().time_since_epoch())
                            .count();
    if (here < total && now < told_at_ms_ + kTellEveryMs) return;
    told_at_ms_ = now;
    serve::JobNews news;
    news.status = "pulling";
    news.completed = here;
    news.total = total;
    Write(news);
  }
  void End(const absl::Status& status) {
    serve::JobNews news;
    news.done = true;
    news.code = static_cast<int>(status.code());
    if (!status.ok()) news.error = StatusMessage(status);
    Write(news);
  }

 private:
  void Write(const serve::JobNews& news) {
    if (descriptor_ < 0) return;
    const std::string line = serve::LineOf(news);
    if (write(descriptor_, line.data(), line.size()) < 0) descriptor_ = -1;
  }

  int descriptor_;
  int64_t told_at_ms_ = 0;
};

void AddFlags(PullArguments& pull, config::Schema& schema) {
  schema.AddPositional({.name = "MODEL",
                        .help = "A short name, hf:ORG/REPO[:REVISION][/FILE.gguf], "
                                "https://HOST/FILE.gguf[#sha256=HEX], "
                                "s3://BUCKET/PREFIX[/FILE.gguf], "
                                "oci://REGISTRY/REPO[:TAG|@DIGEST], "
                                "mlflow:models:/NAME/VERSION, mlflow:models:/NAME@ALIAS, or "
                                "mlflow:runs:/RUN/PATH. Without one: lists the "
                                "short names, and which of them fit this machine.",
                        .target = &pull.model},
                       false);
  schema.Group("Transfer");
  schema.Add({.name = "bandwidth",
              .help = "Most bytes a second that the transfer takes, as 10MB.",
              .target = &pull.bandwidth,
              .value_name = "SIZE",
              .default_text = "no limit"});
  schema.Add({.name = "connections",
              .help = "Parts that come at the same time.",
              .target = &pull.connections,
              .min = 1,
              .max = pull::kMaxConnections});
  config::AddReadyFlag(schema, pull.ready_fd);
  schema.Add({.name = "for-client",
              .help = "A client of quire serve named the model: it comes from the catalogue or the "
                      "hub, and no redirect leads to a private address.",
              .target = &pull.for_client,
              .hidden = true});
  schema.Add(
      {.name = "for-worker",
       .help = "Asks no server where the model is on this machine, and prints its path and, on a "
               "second line, the name that it is served by.",
       .target = &pull.for_worker,
       .hidden = true});
  schema.Add({.name = "max-bytes",
              .help = "The most bytes that the model may have; 0 is no limit.",
              .target = &pull.max_bytes,
              .min = 0,
              .max = 1ll << 50,
              .hidden = true});
  schema.Add({.name = "catalogue",
              .help = "File with short names, in place of the program's own.",
              .target = &pull.catalogue,
              .value_name = "FILE",
              .default_text = "~/.config/quire/catalogue.json, else the program's"});
}

int ListCatalogue(const ModelFinder& finder) {
  const int64_t available = ReadMachine("/").available_bytes;
  for (const pull::CatalogueModel& model : finder.catalogue) {
    std::string name = model.name;
    name.resize(std::max<size_t>(name.size(), 18), ' ');
    Show(stdout, name + "  " + FitText(model, available) + "\n");
  }
  std::printf("\nhf:ORG/REPO names any model of the hub. `quire pull NAME` fetches one.\n");
  return 0;
}

// A model of the store by its own name, or of the hub's cache.
absl::StatusOr<int64_t> Remove(const ModelFinder& finder, const std::string& name) {
  if (pull::CheckCopyName(name).ok()) {
    absl::StatusOr<int64_t> removed = pull::RemoveFromStore(finder.options.store, name);
    if (!absl::IsNotFound(removed.status())) return removed;
  }
  if (const auto here = ResolveModel(name, finder.folders); here.ok()) {
    return InvalidArgument("'" + PlainText(name, 200) + "' was not pulled: its files are at " +
                           here->path + ", and quire deletes none of them");
  }
  QUIRE_ASSIGN_OR_RETURN(const NamedSource named, SourceOf(finder, name));
  if (named.source.kind != pull::Kind::kHub) {
    return pull::RemoveFromStore(finder.options.store, named.served_name);
  }
  return pull::RemoveCached(named.source, finder.options);
}

// What a client may name; the supervisor's router has looked at it already.
absl::Status CheckForClient(const ModelFinder& finder, const std::string& name) {
  const bool of_hub = name.starts_with("hf:") || name.starts_with("hf.co/");
  if (of_hub || pull::FindInCatalogue(finder.catalogue, name) != nullptr) return absl::OkStatus();
  if (!pull::FamilyOf(finder.catalogue, name).empty()) return absl::OkStatus();  // lists its sizes
  return absl::NotFoundError(AbslView("'" + PlainText(name, 200) +
                                      "' is no name of the catalogue, and none of the hub such as "
                                      "hf:ORG/REPO"));
}

int Stopped() {
  std::fputs("quire pull: stopped; what is here stays, and the same command goes on\n", stderr);
  return 130;
}

// worker/named_model.h reads what it prints.
int FindForWorker(ModelFinder& finder, const std::string& name) {
  const absl::StatusOr<ResolvedModel> model = FindOrPull(finder, name);
  if (absl::IsCancelled(model.status())) return Stopped();
  if (!model.ok()) return cli::Failed("pull", model.status());
  Show(stdout, model->path + "\n" + model->served_name + "\n");
  return 0;
}

}  // namespace

int RunPull(const CommandInputs& inputs) {
  PullArguments pull;
  config::Schema schema("quire pull",
                        "Brings a model to this machine: parts in parallel, resumed where an "
                        "earlier pull ended, checked by digest. Ctrl-C stops it; what is here "
                        "stays. HF_TOKEN, HF_ENDPOINT, HF_HUB_OFFLINE and HF_HUB_CACHE work as "
                        "in the hub's own client, and its cache is shared with it; "
                        "AWS_ENDPOINT_URL, AWS_REGION, AWS_ACCESS_KEY_ID, "
                        "AWS_SECRET_ACCESS_KEY and AWS_SESSION_TOKEN as in AWS's. A registry gets "
                        "the account of Docker's config.json, in ~/.docker or DOCKER_CONFIG. "
                        "MLFLOW_TRACKING_URI, MLFLOW_TRACKING_TOKEN, MLFLOW_TRACKING_USERNAME "
                        "and MLFLOW_TRACKING_PASSWORD work as in MLflow's.");
  AddFlags(pull, schema);
  if (const std::optional<int> code = Begin(inputs, schema, "pull")) return *code;
  absl::StatusOr<ModelFinder> finder =
      MakeFinder(inputs.environment, pull.folders, pull.catalogue, *inputs.interrupted);
  if (!finder.ok()) return Failed("pull", finder.status());
  if (pull.model.empty()) return ListCatalogue(*finder);
  finder->options.connections = pull.connections;
  finder->options.for_client = pull.for_client;
  finder->options.max_bytes = pull.max_bytes;
  if (!pull.bandwidth.empty()) {
    const absl::StatusOr<config::Bytes> limit = config::ParseBytes(pull.bandwidth);
    if (!limit.ok() || limit->value < 1024) {
      return Failed("pull", InvalidArgument("--bandwidth: must be a size of 1KiB or more, is '" +
                                            pull.bandwidth + "'"));
    }
    finder->options.bytes_per_second = static_cast<double>(limit->value);
  }
  if (pull.for_worker) return FindForWorker(*finder, pull.model);
  Teller teller(pull.ready_fd);
  const auto bring = [&]() -> absl::StatusOr<pull::Pulled> {
    if (pull.for_client) QUIRE_RETURN_IF_ERROR(CheckForClient(*finder, pull.model));
    return PullNamed(
        *finder, pull.model,
        !teller.on() ? pull::OnProgress()
                     : [&teller](int64_t here, int64_t total) { teller.Progress(here, total); });
  };
  const absl::StatusOr<pull::Pulled> pulled = bring();
  teller.End(pulled.status());
  if (absl::IsCancelled(pulled.status())) return Stopped();
  if (!pulled.ok()) return Failed("pull", pulled.status());
  const int64_t fetched = pulled->totals.fetched_bytes;
  Show(stderr, pull.model +
                   " is here and checked: " + SizeText(static_cast<double>(pulled->bytes)) + ", " +
                   (fetched == 0 ? "nothing was left to fetch"
                                 : SizeText(static_cast<double>(fetched)) + " fetched now") +
                   "\n");
  Show(stdout, pulled->path + "\n");
  return 0;
}

int RunCopy(const CommandInputs& inputs) {
  std::string from, to;
  config::Schema schema("quire cp",
                        "Gives a model another name. Both share their bytes on the disk, and "
                        "either may be removed.");
  schema.AddPositional({.name = "MODEL", .help = "A model on this machine.", .target = &from},
                       true);
  schema.AddPositional({.name = "NEW", .help = "Its other name.", .target = &to}, true);
  if (const std::optional<int> code = Begin(inputs, schema, "cp")) return *code;
  const absl::StatusOr<ModelFinder> finder =
      MakeFinder(inputs.environment, {}, "", *inputs.interrupted);
  if (!finder.ok()) return Failed("cp", finder.status());
  if (const absl::Status status = pull::CheckCopyName(to); !status.ok()) {
    return Failed("cp", Annotate(status, "NEW"));
  }
  if (ResolveModel(to, finder->folders).ok()) {
    return Failed("cp", InvalidArgument("NEW: there is a model '" + to + "' already"));
  }
  const absl::StatusOr<ResolvedModel> model = FindHere(*finder, from);
  if (!model.ok()) return Failed("cp", model.status());
  const absl::Status status = pull::CopyToStore(finder->options.store, model->path, to);
  return status.ok() ? 0 : Failed("cp", status);
}

int RunRemove(const CommandInputs& inputs) {
  std::string model;
  int32_t ready_fd = -1;
  config::Schema schema("quire rm",
                        "Takes a model that was pulled or copied off this machine. Files that "
                        "another model uses stay.");
  schema.AddPositional(
      {.name = "MODEL", .help = "A name that `quire list` shows.", .target = &model}, true);
  config::AddReadyFlag(schema, ready_fd);
  if (const std::optional<int> code = Begin(inputs, schema, "rm")) return *code;
  const absl::StatusOr<ModelFinder> finder =
      MakeFinder(inputs.environment, {}, "", *inputs.interrupted);
  if (!finder.ok()) return Failed("rm", finder.status());
  const absl::StatusOr<int64_t> freed = Remove(*finder, model);
  Teller(ready_fd).End(freed.status());
  if (!freed.ok()) return Failed("rm", freed.status());
  Show(stdout, "removed " + model + ", " + SizeText(static_cast<double>(*freed)) + "\n");
  return 0;
}

}  // namespace quire::cli
