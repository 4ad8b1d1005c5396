// Hugging Face folders: safetensors with packed matrices, and a config.json that describes them as
// the compressed-tensors package does.
#include <filesystem>

#include "cli/models/gguf_bytes.h"
#include "cli/models/safetensors_text.h"
#include "cli/quantise/layout.h"
#include "cli/quantise/pack_rows.h"
#include "common/json/json.h"

namespace quire::cli {
namespace {

constexpr int64_t kFileBytes = int64_t{4} << 30;  // of tensors in a file, at least one tensor

// Files with their entries, filled in one after another.
class Shards {
 public:
  // The place of a tensor; offsets are within the data until Finish.
  OutputPart Add(std::string name, std::string dtype, std::vector<int64_t> shape, int64_t bytes) {
    if (entries_.empty() || entries_.back().back().end + bytes > kFileBytes) {
      entries_.emplace_back();
      small_.emplace_back();
    }
    std::vector<SafetensorsEntry>& file = entries_.back();
    const int64_t begin = file.empty() ? 0 : file.back().end;
    file.push_back({std::move(name), std::move(dtype), std::move(shape), begin, begin + bytes});
    return {.file = entries_.size() - 1, .offset = begin};
  }

  void AddShape(const std::string& module, int64_t rows, int64_t cols) {
    GgufBytes bytes;
    bytes.Number(rows);
    bytes.Number(cols);
    const OutputPart part = Add(module + ".weight_shape", "I64", {2}, 16);
    small_[part.file].emplace_back(part.offset, bytes.text());
  }

  void Finish(QuantisedModel& model) {
    std::vector<std::pair<std::string, std::string>> places;
    int64_t total = 0;
    for (size_t i = 0; i < entries_.size(); ++i) {
      QuantisedFile file = {.name = SafetensorsName(i, entries_.size()),
                            .head = SafetensorsHead(entries_[i])};
      const auto head = static_cast<int64_t>(file.head.size());
      file.bytes = head + entries_[i].back().end;
      for (auto& [offset, bytes] : small_[i]) file.small_parts.emplace_back(head + offset, bytes);
      for (const SafetensorsEntry& entry : entries_[i]) places.emplace_back(entry.name, file.name);
      total += entries_[i].back().end;
      model.files.push_back(std::move(file));
    }
    for (QuantisedTensor& tensor : model.tensors) {
      for (OutputPart* part : {&tensor.codes, &tensor.scales}) {
        part->offset += static_cast<int64_t>(model.files[part->file].head.size());
      }
    }
    if (entries_.size() > 1) {
      model.texts.emplace_back("model.safetensors.index.json", SafetensorsIndex(places, total));
    }
  }

 private:
  std::vector<std::vector<SafetensorsEntry>> entries_;
  std::vector<std::vector<std::pair<int64_t, std::string>>> small_;
};

void AddPacked(const load::Tensor& source, Packing packing, Shards& shards, QuantisedTensor& out) {
  const std::string module = ModuleOf(source);
  out.rows = source.shape[0];
  out.cols = source.shape[1];
  out.packing = packing;
  const int64_t row = CodeBytes(packing, out.cols);
  if (packing == Packing::kInt4Groups || packing == Packing::kInt8Packed) {
    out.codes = shards.Add(module + ".weight_packed", "I32", {out.rows, row / 4}, out.rows * row);
    shards.AddShape(module, out.rows, out.cols);
  } else {
    out.codes = shards.Add(source.name, packing == Packing::kFp8Rows ? "F8_E4M3" : "I8",
                           {out.rows, out.cols}, out.rows * row);
  }
  out.codes.row_bytes = row;
  const int64_t count = ScaleCount(packing, out.cols);
  out.scales =
      shards.Add(module + ".weight_scale", "BF16", {out.rows, count}, 2 * out.rows * count);
  out.scales.row_bytes = 2 * count;
}

json::Object WeightsText(Packing packing) {
  const bool groups = packing == Packing::kInt4Groups;
  json::Object weights;
  weights["num_bits"] = groups ? 4 : 8;
  weights["type"] = packing == Packing::kFp8Rows ? "float" : "int";
  weights["symmetric"] = true;
  weights["strategy"] = groups ? "group" : "channel";
  weights["group_size"] = groups ? json::Value(kInt4Group) : json::Value(nullptr);
  weights["dynamic"] = false;
  return weights;
}

// Engines that round activations do it for each token as it comes.
json::Value InputsText(Packing packing) {
  if (packing != Packing::kInt8Rows && packing != Packing::kFp8Rows) return nullptr;
  json::Object inputs;
  inputs["num_bits"] = 8;
  inputs["type"] = packing == Packing::kFp8Rows ? "float" : "int";
  inputs["symmetric"] = true;
  inputs["strategy"] = "token";
  inputs["dynamic"] = true;
  return inputs;
}

std::string ConfigText(const json::Object& original, const QuantiseFormat& format,
                       const json::Array& ignore) {
  const Packing packing = format.packing;
  const char* name = packing == Packing::kFp8Rows    ? "float-quantized"
                     : packing == Packing::kInt8Rows ? "int-quantized"
                                                     : "pack-quantized";
  json::Object group;
  group["targets"] = json::Array{"Linear"};
  group["weights"] = WeightsText(packing);
  group["input_activations"] = InputsText(packing);
  group["output_activations"] = nullptr;
  group["format"] = name;
  json::Object quantisation;
  quantisation["quant_method"] = "compressed-tensors";
  quantisation["format"] = name;
  quantisation["quantization_status"] = "compressed";
  quantisation["config_groups"] = json::Object{{"group_0", std::move(group)}};
  quantisation["ignore"] = ignore;
  quantisation["kv_cache_scheme"] = nullptr;
  json::Object config = original;
  config["quantization_config"] = std::move(quantisation);
  return json::Serialize(config) + "\n";
}

// Tokenizer, template and the like: files that neither hold weights nor describe them.
bool IsCompanion(const std::filesystem::path& file) {
  const std::string name = file.filename().string();
  if (name == "config.json" || name.ends_with(".index.json") || name.starts_with(".")) return false;
  const std::string ending = file.extension().string();
  return ending == ".json" || ending == ".jinja" || ending == ".txt" || ending == ".model" ||
         name.starts_with("LICENSE");
}

absl::Status ListCompanions(const load::ModelFiles& files, QuantisedModel& model) {
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(files.path(), error)) {
    if (!IsCompanion(entry.path())) continue;
    if (model.companions.size() == kMaxCompanions) {
      return InvalidArgument(files.path() + ": has more than " + std::to_string(kMaxCompanions) +
                             " files beside its weights; move them elsewhere");
    }
    model.companions.push_back(entry.path().filename().string());
  }
  if (error) return InvalidArgument(files.path() + ": cannot be read: " + error.message());
  return absl::OkStatus();
}

// The names that a packed matrix gets belong to it alone.
absl::Status CheckNames(const load::TensorTable& tensors, const load::Tensor& matrix) {
  for (const char* part : {"_packed", "_shape", "_scale"}) {
    const load::Tensor* found = tensors.Find(matrix.name + part);
    if (found == nullptr) continue;
    return InvalidArgument(found->file + ": tensor \"" + found->name + "\" is beside \"" +
                           matrix.name + "\", as in quantised models; give the model in floats");
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<QuantisedModel> LayOutCheckpoint(const load::ModelFiles& files,
                                                const QuantiseFormat& format) {
  QuantisedModel model;
  Shards shards;
  json::Array ignore = {"lm_head"};
  for (const auto& [name, tensor] : files.tensors().all()) {
    QuantisedTensor& out = model.tensors.emplace_back();
    out.source = &tensor;
    if (IsPacked(format, tensor)) {
      QUIRE_RETURN_IF_ERROR(CheckNames(files.tensors(), tensor));
      AddPacked(tensor, format.packing, shards, out);
      continue;
    }
    out.copied = true;
    out.codes =
        shards.Add(name, tensor.type_name, tensor.shape, static_cast<int64_t>(tensor.bytes.size()));
    const bool matrix = tensor.shape.size() == 2 && name.ends_with(".weight");
    const bool known = name == "lm_head.weight" || name.find("embed") != std::string::npos;
    if (matrix && !known) ignore.push_back(json::String(ModuleOf(tensor)));
  }
  shards.Finish(model);
  QUIRE_RETURN_IF_ERROR(ListCompanions(files, model));
  model.texts.emplace_back("config.json", ConfigText(files.config(), format, ignore));
  return model;
}

}  // namespace quire::cli
