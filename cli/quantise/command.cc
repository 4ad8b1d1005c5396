// `quire quantize`: a smaller copy of a model in floats.
#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <thread>

#include "cli/commands.h"
#include "cli/format.h"
#include "cli/models/find_model.h"
#include "cli/models/output_folder.h"
#include "cli/models/progress_bar.h"
#include "cli/models/weight_files.h"
#include "cli/quantise/write.h"

namespace quire::cli {
namespace {

constexpr size_t kWorstShown = 3;

struct QuantiseArguments {
  std::string model, folder, format, report;
  int32_t threads = 0;
};

void AddFlags(QuantiseArguments& arguments, config::Schema& schema) {
  std::vector<std::string> names;
  for (const QuantiseFormat& format : QuantiseFormats()) names.emplace_back(format.name);
  schema.AddPositional({.name = "MODEL",
                        .help = "A model in floats: a name of this machine, a Hugging Face folder "
                                "or a GGUF file.",
                        .target = &arguments.model},
                       true);
  schema.AddPositional({.name = "DIR",
                        .help = "A folder that is not there yet, or is empty.",
                        .target = &arguments.folder},
                       true);
  schema.Add({.name = "format",
              .help = "q4_0, q8_0, q4_k_s, q4_k_m, q5_k_s, q5_k_m and q6_k make a GGUF file of a "
                      "GGUF file. The others make a folder in "
                      "compressed-tensors of a folder: w4a16 has 4 bits under a scale for 128 "
                      "inputs, w8a16 and w8a8 have 8 bits and fp8 has e4m3 under a scale for each "
                      "row. Engines that round activations do so for w8a8 and fp8. Embeddings, "
                      "heads, norms and routers of a folder stay as they are.",
              .target = &arguments.format,
              .value_name = "NAME",
              .choices = names});
  schema.Add({.name = "report",
              .help = "Writes a line for each matrix: its name, its type and what it lost.",
              .target = &arguments.report,
              .value_name = "FILE"});
  schema.Add({.name = "threads",
              .help = "Threads that quantise.",
              .target = &arguments.threads,
              .min = 1,
              .max = kMaxWeightThreads,
              .default_text = "one for each processor"});
}

std::string TypeText(const QuantiseFormat& format, const QuantisedTensor& tensor) {
  return tensor.packing ? std::string(format.name) : kernels::DTypeName(tensor.type);
}

std::string PercentText(double share) { return NumberText(100.0 * share) + " %"; }

absl::Status WriteReport(const std::string& path, const QuantiseFormat& format,
                         const std::vector<TensorLoss>& losses) {
  std::string text = "matrix\ttype\trows\tcolumns\trelative error\n";
  for (const TensorLoss& loss : losses) {
    text += loss.tensor->source->name + "\t" + TypeText(format, *loss.tensor) + "\t" +
            std::to_string(loss.tensor->rows) + "\t" + std::to_string(loss.tensor->cols) + "\t" +
            std::to_string(loss.error) + "\n";
  }
  return WriteText(path, text);
}

void ShowSummary(const QuantiseArguments& arguments, const load::ModelFiles& files,
                 const QuantisedModel& model, std::vector<TensorLoss> losses) {
  int64_t before = 0;
  for (const QuantisedTensor& tensor : model.tensors) {
    before += static_cast<int64_t>(tensor.source->bytes.size());
  }
  double sum = 0.0;
  for (const TensorLoss& loss : losses) sum += loss.error;
  std::string text = arguments.folder + ": " + std::to_string(losses.size()) + " matrices are " +
                     arguments.format + ", " +
                     std::to_string(model.tensors.size() - losses.size()) + " tensors stay; " +
                     BytesText(static_cast<double>(model.bytes())) + ", was " +
                     BytesText(static_cast<double>(before)) + "\n";
  text += "error        " + PercentText(sum / static_cast<double>(losses.size())) +
          " of a matrix's values on average";
  std::ranges::sort(losses, std::greater<>(), &TensorLoss::error);
  losses.resize(std::min(losses.size(), kWorstShown));
  text += "; the largest:\n";
  for (const TensorLoss& loss : losses) {
    text += "             " + PercentText(loss.error) + "  " +
            PlainText(loss.tensor->source->name, 200) + "\n";
  }
  const std::string made = arguments.folder + (files.is_gguf() ? "/model.gguf" : "");
  Show(stdout, text + "serve it     quire serve " + made + "\n");
}

absl::Status Quantise(const QuantiseArguments& arguments, const CommandInputs& inputs) {
  if (!arguments.report.empty() && std::filesystem::exists(arguments.report)) {
    return InvalidArgument("--report: " + arguments.report + " is there already; name a new file");
  }
  QUIRE_ASSIGN_OR_RETURN(const ModelFinder finder,
                         MakeFinder(inputs.environment, {}, "", *inputs.interrupted));
  QUIRE_ASSIGN_OR_RETURN(const ResolvedModel found, FindHere(finder, arguments.model));
  absl::StatusOr<std::unique_ptr<load::ModelFiles>> files = load::ModelFiles::Open(found.path);
  if (!files.ok()) return files.status();
  const QuantiseFormat& format = *FindQuantiseFormat(arguments.format);
  QUIRE_ASSIGN_OR_RETURN(const QuantisedModel model, LayOutQuantised(**files, format));
  ProgressBar bar("quantising");
  QuantiseOptions options;
  options.folder = arguments.folder;
  options.threads =
      arguments.threads > 0
          ? arguments.threads
          : std::clamp(static_cast<int>(std::thread::hardware_concurrency()), 1, kMaxWeightThreads);
  options.interrupted = inputs.interrupted;
  options.progress = [&bar](int64_t here, int64_t total) { bar.Show(here, total); };
  QUIRE_ASSIGN_OR_RETURN(const std::vector<TensorLoss> losses,
                         WriteQuantised(**files, model, options));
  bar.End();
  if (!arguments.report.empty()) {
    QUIRE_RETURN_IF_ERROR(WriteReport(arguments.report, format, losses));
  }
  ShowSummary(arguments, **files, model, losses);
  return absl::OkStatus();
}

}  // namespace

int RunQuantise(const CommandInputs& inputs) {
  QuantiseArguments arguments;
  config::Schema schema("quire quantize",
                        "Writes a smaller copy of a model in floats: each weight becomes the "
                        "nearest of the few numbers that its format has. Nothing is calibrated.");
  AddFlags(arguments, schema);
  if (const std::optional<int> code = Begin(inputs, schema, "quantize")) return *code;
  if (arguments.format.empty()) {
    return Failed("quantize", InvalidArgument("--format is missing; one of the formats that "
                                              "`quire quantize --help` lists, such as q4_k_m"));
  }
  const absl::Status done = Quantise(arguments, inputs);
  return done.ok() ? 0 : Failed("quantize", done);
}

}  // namespace quire::cli
