// `quire make-weights`: a model of a true shape with made-up values, for load tests and benches
// without a real model.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <thread>

#include "cli/commands.h"
#include "cli/format.h"
#include "cli/models/weight_files.h"
#include "common/config/values.h"

namespace quire::cli {
namespace {

struct MakeArguments {
  std::string shape, folder;
  int64_t seed = 0;
  std::string dtype = "bf16";
  int32_t layers = 0;
  int32_t vocabulary = 0;
};

void AddFlags(MakeArguments& make, config::Schema& schema) {
  std::vector<std::string> names;
  std::string list;
  for (const ModelShape& shape : ModelShapes()) {
    names.emplace_back(shape.name);
    list += (list.empty() ? "" : ", ") + names.back();
  }
  schema.AddPositional(
      {.name = "SHAPE", .help = "One of " + list + ".", .target = &make.shape, .choices = names},
      true);
  schema.AddPositional({.name = "DIR",
                        .help = "A folder that is not there yet, or is empty.",
                        .target = &make.folder},
                       true);
  schema.Add({.name = "seed",
              .help = "Equal seeds give equal bytes on every machine.",
              .target = &make.seed,
              .min = 0});
  schema.Add({.name = "dtype",
              .help = "Type of the weights. q4_k is one GGUF file, model.gguf, with matrices in "
                      "blocks of 256, or of 32 (Q4_0) where rows are no whole ones; gguf_f16 is "
                      "one with matrices in float16.",
              .target = &make.dtype,
              .choices = {"bf16", "f16", "f32", "q4_k", "gguf_f16"}});
  schema.Add({.name = "layers",
              .help = "Writes only the first so many layers, with the bytes that they have in the "
                      "whole model.",
              .target = &make.layers,
              .min = 1,
              .max = 1024,
              .default_text = "all"});
  schema.Add({.name = "vocabulary",
              .help = "Writes a model of so many token ids. The last ones are the special tokens.",
              .target = &make.vocabulary,
              .min = 1,
              .max = 1 << 20,
              .default_text = "all"});
}

WeightType TypeOf(const std::string& dtype) {
  if (dtype == "q4_k") return WeightType::kQ4K;
  if (dtype == "f32") return WeightType::kF32;
  return dtype == "f16" || dtype == "gguf_f16" ? WeightType::kF16 : WeightType::kBf16;
}

bool IsGguf(const std::string& dtype) { return dtype == "q4_k" || dtype == "gguf_f16"; }

absl::Status CheckArguments(const MakeArguments& make, const ModelShape& shape) {
  if (make.layers > shape.layers) {
    return absl::InvalidArgumentError("--layers: " + make.shape + " has " +
                                      std::to_string(shape.layers) + " layers, not " +
                                      std::to_string(make.layers));
  }
  const int32_t least = LeastVocabulary(shape);
  if (make.vocabulary > 0 && make.vocabulary < least) {
    return absl::InvalidArgumentError("--vocabulary: " + make.shape + " needs at least " +
                                      std::to_string(least) + " ids, not " +
                                      std::to_string(make.vocabulary));
  }
  if (OnlyGguf(shape) && !IsGguf(make.dtype)) {
    return absl::InvalidArgumentError("--dtype: " + make.shape +
                                      " is written as a GGUF file alone: give q4_k or gguf_f16, "
                                      "not " +
                                      make.dtype);
  }
  return absl::OkStatus();
}

}  // namespace

int RunMakeWeights(const CommandInputs& inputs) {
  MakeArguments make;
  config::Schema schema("quire make-weights",
                        "Writes a model of a true shape whose weights are made up from a seed: it "
                        "loads and serves like the real one and says nothing of sense.");
  AddFlags(make, schema);
  if (const std::optional<int> code = Begin(inputs, schema, "make-weights")) return *code;
  ModelShape shape = *FindShape(make.shape);
  if (const absl::Status status = CheckArguments(make, shape); !status.ok()) {
    return Failed("make-weights", status);
  }
  std::vector<SpecialToken> specials;
  if (make.vocabulary > 0) shape = WithVocabulary(shape, make.vocabulary, specials);
  WeightFilesOptions options;
  options.shape = &shape;
  options.layers = make.layers == 0 ? shape.layers : make.layers;
  options.seed = static_cast<uint64_t>(make.seed);
  options.type = TypeOf(make.dtype);
  options.gguf = IsGguf(make.dtype);
  options.folder = make.folder;
  options.threads =
      std::clamp(static_cast<int>(std::thread::hardware_concurrency()), 1, kMaxWeightThreads);
  options.interrupted = inputs.interrupted;
  const auto begin = std::chrono::steady_clock::now();
  const absl::StatusOr<int64_t> bytes = WriteModelFolder(options);
  if (!bytes.ok()) return Failed("make-weights", bytes.status());
  const double seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  const std::string model = make.folder + (options.gguf ? "/model.gguf" : "");
  std::printf("%s: %s of %d layers, %s in %.1f s\nserve it     quire serve %s\n",
              make.folder.c_str(), make.shape.c_str(), options.layers,
              BytesText(static_cast<double>(*bytes)).c_str(), seconds, model.c_str());
  return 0;
}

}  // namespace quire::cli
