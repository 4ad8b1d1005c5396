#include "cli/quantise/write.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <memory>
#include <mutex>

#include "cli/models/output_folder.h"
#include "cli/models/weight_files.h"
#include "cli/quantise/pack_rows.h"
#include "kernels/cpu/half.h"
#include "kernels/encode/encode.h"
#include "kernels/expand.h"

namespace quire::cli {
namespace {

using kernels::DType;

std::string FileName(const QuantisedFile& file) {
  return file.name.ends_with(".gguf") ? file.name + ".part" : file.name;
}

class Writer {
 public:
  Writer(const load::ModelFiles& files, const QuantisedModel& model, const QuantiseOptions& options)
      : files_(files), model_(model), options_(options), losses_(model.tensors.size()) {
    for (size_t i = 0; i < model.tensors.size(); ++i) {
      const QuantisedTensor& tensor = model.tensors[i];
      total_ += static_cast<int64_t>(tensor.source->bytes.size());
      if (tensor.copied) {
        pieces_.push_back({i, 0, 1});
        continue;
      }
      const int64_t rows = std::max<int64_t>(1, kPieceBytes / (4 * tensor.cols));
      for (int64_t row = 0; row < tensor.rows; row += rows) {
        pieces_.push_back({i, row, std::min(rows, tensor.rows - row)});
      }
    }
  }

  absl::Status Run(OutputFolder& folder) {
    for (const QuantisedFile& file : model_.files) {
      outputs_.push_back(std::make_unique<OutputFile>(folder.Path(FileName(file))));
      const OutputFile& out = *outputs_.back();
      QUIRE_RETURN_IF_ERROR(out.status());
      QUIRE_RETURN_IF_ERROR(out.Reserve(file.bytes));
      QUIRE_RETURN_IF_ERROR(out.Write(0, std::as_bytes(std::span(file.head))));
      for (const auto& [offset, bytes] : file.small_parts) {
        QUIRE_RETURN_IF_ERROR(out.Write(offset, std::as_bytes(std::span(bytes))));
      }
    }
    QUIRE_RETURN_IF_ERROR(RunTickets(pieces_.size(), options_.threads, options_.interrupted,
                                     [this](size_t ticket) { return Write(pieces_[ticket]); }));
    for (const auto& out : outputs_) QUIRE_RETURN_IF_ERROR(out->Close());
    return absl::OkStatus();
  }

  std::vector<TensorLoss> Losses() const {
    std::vector<TensorLoss> losses;
    for (size_t i = 0; i < losses_.size(); ++i) {
      if (model_.tensors[i].copied) continue;
      const double size = losses_[i].squares;
      losses.push_back(
          {&model_.tensors[i], size == 0.0 ? 0.0 : std::sqrt(losses_[i].misses / size)});
    }
    return losses;
  }

 private:
  struct Piece {
    size_t tensor;
    int64_t row, rows;
  };
  struct Sums {
    double misses = 0.0, squares = 0.0;
  };

  absl::Status Write(const Piece& piece) {
    const QuantisedTensor& tensor = model_.tensors[piece.tensor];
    const std::span<const std::byte> source = tensor.source->bytes;
    if (tensor.copied) {
      QUIRE_RETURN_IF_ERROR(outputs_[tensor.codes.file]->Write(tensor.codes.offset, source));
      Done(piece, source, {});
      return absl::OkStatus();
    }
    QUIRE_ASSIGN_OR_RETURN(const Sums sums, Quantise(tensor, piece));
    const int64_t row_bytes = static_cast<int64_t>(source.size()) / tensor.rows;
    Done(piece,
         source.subspan(static_cast<size_t>(piece.row * row_bytes),
                        static_cast<size_t>(piece.rows * row_bytes)),
         sums);
    return absl::OkStatus();
  }

  absl::StatusOr<Sums> Quantise(const QuantisedTensor& tensor, const Piece& piece) {
    const auto cols = static_cast<size_t>(tensor.cols);
    const auto code_bytes = static_cast<size_t>(tensor.codes.row_bytes);
    const auto scale_bytes = static_cast<size_t>(tensor.scales.row_bytes);
    std::vector<std::byte> codes(static_cast<size_t>(piece.rows) * code_bytes);
    std::vector<std::byte> scales(static_cast<size_t>(piece.rows) * scale_bytes);
    std::vector<float> row(cols), read_back(cols);
    const kernels::WeightSource source = {.type = *tensor.source->type,
                                          .rows = tensor.rows,
                                          .cols = tensor.cols,
                                          .data = tensor.source->bytes.data()};
    Sums sums;
    for (size_t i = 0; i < static_cast<size_t>(piece.rows); ++i) {
      kernels::ExpandRow(source, piece.row + static_cast<int64_t>(i), row);
      const PackedRow out = {std::span(codes).subspan(i * code_bytes, code_bytes),
                             std::span(scales).subspan(i * scale_bytes, scale_bytes)};
      QUIRE_RETURN_IF_ERROR(EncodeOne(tensor, row, out, read_back));
      for (size_t k = 0; k < cols; ++k) {
        const double miss = static_cast<double>(read_back[k]) - static_cast<double>(row[k]);
        sums.misses += miss * miss;
        sums.squares += static_cast<double>(row[k]) * static_cast<double>(row[k]);
      }
      if (!std::isfinite(sums.misses)) return NotFinite(tensor, "is too large for the format");
    }
    QUIRE_RETURN_IF_ERROR(Put(tensor.codes, piece.row, codes));
    if (!scales.empty()) QUIRE_RETURN_IF_ERROR(Put(tensor.scales, piece.row, scales));
    return sums;
  }

  absl::Status EncodeOne(const QuantisedTensor& tensor, std::span<const float> row, PackedRow out,
                         std::span<float> read_back) const {
    for (const float value : row) {
      if (!std::isfinite(value)) return NotFinite(tensor, "is no finite number");
    }
    if (tensor.packing) {
      PackRow(*tensor.packing, row, out, read_back);
      return absl::OkStatus();
    }
    if (tensor.type == DType::kF16) {
      for (size_t k = 0; k < row.size(); ++k) {
        const uint16_t half = kernels::cpu::FloatToHalf(row[k]);
        std::memcpy(out.codes.data() + 2 * k, &half, 2);
      }
    } else {
      kernels::EncodeRow(tensor.type, row, out.codes.data());
    }
    kernels::ExpandRow(
        {.type = tensor.type, .rows = 1, .cols = tensor.cols, .data = out.codes.data()}, 0,
        read_back);
    return absl::OkStatus();
  }

  absl::Status NotFinite(const QuantisedTensor& tensor, const char* what) const {
    return InvalidArgument(tensor.source->file + ": a value of tensor \"" + tensor.source->name +
                           "\" " + what);
  }

  absl::Status Put(const OutputPart& part, int64_t row, std::span<const std::byte> bytes) const {
    return outputs_[part.file]->Write(part.offset + row * part.row_bytes, bytes);
  }

  void Done(const Piece& piece, std::span<const std::byte> source, const Sums& sums) {
    files_.Release(source.data(), static_cast<int64_t>(source.size()));
    const std::lock_guard lock(mutex_);
    losses_[piece.tensor].misses += sums.misses;
    losses_[piece.tensor].squares += sums.squares;
    read_ += static_cast<int64_t>(source.size());
    if (options_.progress) options_.progress(read_, total_);
  }

  const load::ModelFiles& files_;
  const QuantisedModel& model_;
  const QuantiseOptions& options_;
  std::vector<Piece> pieces_;
  std::vector<std::unique_ptr<OutputFile>> outputs_;
  int64_t total_ = 0;
  std::mutex mutex_;
  std::vector<Sums> losses_;  // under mutex_
  int64_t read_ = 0;          // under mutex_
};

absl::Status WriteTexts(const load::ModelFiles& files, const QuantisedModel& model,
                        OutputFolder& folder) {
  for (const std::string& name : model.companions) {
    QUIRE_ASSIGN_OR_RETURN(const std::optional<std::string> text,
                           files.ReadText(name, kMaxCompanionBytes));
    if (text) QUIRE_RETURN_IF_ERROR(WriteText(folder.Path(name), *text));
  }
  for (const auto& [name, text] : model.texts) {
    if (name == "config.json") continue;
    QUIRE_RETURN_IF_ERROR(WriteText(folder.Path(name), text));
  }
  for (const QuantisedFile& file : model.files) {
    if (file.name.ends_with(".gguf")) return PutInPlace(folder.Path(file.name));
  }
  const std::string config = folder.Path("config.json");
  QUIRE_RETURN_IF_ERROR(WriteText(folder.Path("config.json.part"), model.texts.back().second));
  return PutInPlace(config);
}

}  // namespace

absl::StatusOr<std::vector<TensorLoss>> WriteQuantised(const load::ModelFiles& files,
                                                       const QuantisedModel& model,
                                                       const QuantiseOptions& options) {
  QUIRE_ASSIGN_OR_RETURN(const bool made, TakeFolder(options.folder));
  OutputFolder folder(options.folder, made);
  QUIRE_RETURN_IF_ERROR(CheckRoomOnDisk(options.folder, model.bytes()));
  Writer writer(files, model, options);
  QUIRE_RETURN_IF_ERROR(writer.Run(folder));
  QUIRE_RETURN_IF_ERROR(WriteTexts(files, model, folder));
  folder.Keep();
  return writer.Losses();
}

}  // namespace quire::cli
