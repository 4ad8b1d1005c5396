#include "cli/quantise/layout.h"

#include "cli/models/gguf_bytes.h"

namespace quire::cli {
namespace {

// The formats for files of one kind, for messages.
std::string NamesOf(bool gguf) {
  std::string names;
  for (const QuantiseFormat& format : QuantiseFormats()) {
    if (format.gguf == gguf) names += (names.empty() ? "" : ", ") + std::string(format.name);
  }
  return names;
}

absl::Status CheckFloats(const load::ModelFiles& files) {
  if (const load::Quantisation* found = files.quantisation()) {
    return InvalidArgument(files.path() + ": is quantised already (" + found->Description("") +
                           "); give the model in floats");
  }
  for (const auto& [name, tensor] : files.tensors().all()) {
    if (files.is_gguf() && tensor.shape.size() > 1 && !IsFloat(tensor)) {
      return InvalidArgument(files.path() + ": is quantised already (tensor \"" + name + "\" is " +
                             tensor.type_name + "); give the model in floats");
    }
  }
  return absl::OkStatus();
}

}  // namespace

int64_t QuantisedModel::bytes() const {
  int64_t sum = 0;
  for (const QuantisedFile& file : files) sum += file.bytes;
  return sum;
}

absl::StatusOr<QuantisedModel> LayOutQuantised(const load::ModelFiles& files,
                                               const QuantiseFormat& format) {
  QUIRE_RETURN_IF_ERROR(CheckFloats(files));
  if (files.is_gguf() != format.gguf) {
    return InvalidArgument(
        "--format: " + std::string(format.name) +
        (format.gguf ? " needs a GGUF file in floats, and "
                     : " needs a Hugging Face folder, and ") +
        files.path() +
        (files.is_gguf() ? " is a GGUF file: it takes " : " is a folder: it takes ") +
        NamesOf(files.is_gguf()));
  }
  QUIRE_ASSIGN_OR_RETURN(QuantisedModel model, format.gguf
                                                   ? LayOutQuantisedGguf(files.gguf(), format)
                                                   : LayOutCheckpoint(files, format));
  for (const QuantisedTensor& tensor : model.tensors) {
    if (!tensor.copied) return model;
  }
  return InvalidArgument(files.path() + ": no matrix can be " + std::string(format.name) +
                         "; try another --format");
}

absl::StatusOr<QuantisedModel> LayOutQuantisedGguf(const load::GgufFile& file,
                                                   const QuantiseFormat& format) {
  const GgufModelTraits traits = TraitsOf(file);
  QuantisedModel model;
  GgufBytes list;
  int64_t data = 0;
  for (const auto& [name, tensor] : file.tensors().all()) {
    QuantisedTensor& out = model.tensors.emplace_back();
    out.source = &tensor;
    out.cols = tensor.shape.empty() ? 1 : tensor.shape.back();
    for (size_t i = 0; i + 1 < tensor.shape.size(); ++i) out.rows *= tensor.shape[i];
    out.type = GgufTypeFor(format, traits, tensor);
    out.copied = out.type == *tensor.type;
    out.codes.row_bytes =
        out.cols / kernels::BlockElements(out.type) * kernels::BlockBytes(out.type);
    out.codes.offset = data;
    list.String(name);
    list.Number(static_cast<uint32_t>(tensor.shape.size()));
    for (size_t i = tensor.shape.size(); i > 0; --i) {
      list.Number(static_cast<uint64_t>(tensor.shape[i - 1]));
    }
    list.Number(load::GgufTypeNumber(out.type));
    list.Number(static_cast<uint64_t>(data));
    data += GgufAligned(out.rows * out.codes.row_bytes);
  }
  GgufBytes settings;
  for (const load::GgufPair& pair : file.pairs()) {
    if (pair.key == "general.file_type" || pair.key == "general.quantization_version" ||
        pair.key == "general.alignment") {
      continue;
    }
    settings.Pair(pair.key, pair.bytes);
  }
  settings.Key("general.file_type", GgufValueType::kUint32);
  settings.Number(format.file_type);
  settings.Key("general.quantization_version", GgufValueType::kUint32);
  settings.Number(uint32_t{2});  // of the block formats: the one that all readers of version 3 know
  GgufBytes head;
  head.text() = "GGUF";
  head.Number(kGgufVersion);
  head.Number(static_cast<uint64_t>(model.tensors.size()));
  head.Number(settings.keys());
  head.text() += settings.text() + list.text();
  head.Align();
  const auto begin = static_cast<int64_t>(head.text().size());
  for (QuantisedTensor& tensor : model.tensors) tensor.codes.offset += begin;
  model.files.push_back(
      {.name = "model.gguf", .head = std::move(head.text()), .bytes = begin + data});
  return model;
}

}  // namespace quire::cli
