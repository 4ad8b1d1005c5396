#include "cli/models/weight_files.h"

#include <algorithm>
#include <utility>

#include "cli/models/output_folder.h"
#include "cli/models/safetensors_text.h"
#include "cli/models/weight_gguf.h"

namespace quire::cli {
namespace {

std::string_view TypeTag(WeightType type) {
  if (type == WeightType::kBf16) return "BF16";
  return type == WeightType::kF16 ? "F16" : "F32";
}

std::string ShardHead(const WeightShard& shard, WeightType type) {
  std::vector<SafetensorsEntry> entries;
  for (size_t i = 0; i < shard.tensors.size(); ++i) {
    entries.push_back({shard.tensors[i].name, std::string(TypeTag(type)), shard.tensors[i].shape,
                       shard.offsets[i], shard.offsets[i + 1]});
  }
  return SafetensorsHead(entries);
}

// The pieces of one shard, which threads draw by a ticket.
class ShardWriter {
 public:
  ShardWriter(const WeightFilesOptions& options, const WeightShard& shard, const OutputFile& file)
      : options_(options), shard_(shard), file_(file) {
    for (size_t i = 0; i < shard.tensors.size(); ++i) {
      const int64_t bytes = TensorBytes(shard.types[i], shard.tensors[i].count());
      const int64_t block = BlockOf(shard.types[i]).bytes;
      const int64_t piece = kPieceBytes / block * block;
      for (int64_t at = 0; at < bytes; at += piece) {
        pieces_.push_back({i, at, std::min(piece, bytes - at)});
      }
    }
  }

  absl::Status Run() {
    return RunTickets(pieces_.size(), options_.threads, options_.interrupted,
                      [this](size_t ticket) { return WritePiece(pieces_[ticket]); });
  }

 private:
  struct Piece {
    size_t tensor;
    int64_t offset, bytes;
  };

  absl::Status WritePiece(const Piece& piece) const {
    const ShapeTensor& tensor = shard_.tensors[piece.tensor];
    const WeightType type = shard_.types[piece.tensor];
    const WeightBlock block = BlockOf(type);
    std::vector<std::byte> bytes(static_cast<size_t>(piece.bytes));
    FillWeights(TensorKey(options_.seed, tensor.name),
                static_cast<uint64_t>(piece.offset / block.bytes * block.values), tensor.spread,
                type, bytes);
    return file_.Write(
        static_cast<int64_t>(shard_.head.size()) + shard_.offsets[piece.tensor] + piece.offset,
        bytes);
  }

  const WeightFilesOptions& options_;
  const WeightShard& shard_;
  const OutputFile& file_;
  std::vector<Piece> pieces_;
};

absl::Status WriteShard(const WeightFilesOptions& options, const WeightShard& shard) {
  OutputFile file(options.folder + "/" + shard.name);
  QUIRE_RETURN_IF_ERROR(file.status());
  QUIRE_RETURN_IF_ERROR(file.Reserve(shard.bytes()));
  QUIRE_RETURN_IF_ERROR(file.Write(0, std::as_bytes(std::span(shard.head))));
  QUIRE_RETURN_IF_ERROR(ShardWriter(options, shard, file).Run());
  return file.Close();
}

std::string IndexText(const std::vector<WeightShard>& shards) {
  std::vector<std::pair<std::string, std::string>> places;
  int64_t total = 0;
  for (const WeightShard& shard : shards) {
    total += shard.offsets.back();
    for (const ShapeTensor& tensor : shard.tensors) places.emplace_back(tensor.name, shard.name);
  }
  return SafetensorsIndex(places, total);
}

absl::Status WriteGguf(const WeightFilesOptions& options, WeightShard file, OutputFolder& folder) {
  const std::string path = folder.Path(file.name);
  file.name += ".part";
  folder.Path(file.name);
  QUIRE_RETURN_IF_ERROR(WriteShard(options, file));
  return PutInPlace(path);
}

absl::Status WriteAll(const WeightFilesOptions& options, const std::vector<WeightShard>& shards,
                      OutputFolder& folder) {
  const ModelShape& shape = *options.shape;
  if (options.gguf) return WriteGguf(options, shards.front(), folder);
  const auto text = [&folder](const std::string& name, const std::string& content) {
    return WriteText(folder.Path(name), content);
  };
  QUIRE_RETURN_IF_ERROR(text("tokenizer.json", TokenizerText(shape)));
  QUIRE_RETURN_IF_ERROR(text("tokenizer_config.json", TokenizerConfigText(shape)));
  QUIRE_RETURN_IF_ERROR(text("generation_config.json", GenerationConfigText(shape)));
  if (shards.size() > 1) {
    QUIRE_RETURN_IF_ERROR(text("model.safetensors.index.json", IndexText(shards)));
  }
  for (const WeightShard& shard : shards) {
    folder.Path(shard.name);
    QUIRE_RETURN_IF_ERROR(WriteShard(options, shard));
  }
  QUIRE_RETURN_IF_ERROR(text("config.json.part", ConfigText(shape, options.layers, options.type)));
  return PutInPlace(folder.Path("config.json"));
}

}  // namespace

std::vector<WeightShard> LayOutShards(const std::vector<ShapeTensor>& tensors, WeightType type,
                                      int64_t shard_bytes) {
  std::vector<WeightShard> shards;
  for (const ShapeTensor& tensor : tensors) {
    const int64_t bytes = TensorBytes(type, tensor.count());
    if (shards.empty() || shards.back().offsets.back() + bytes > shard_bytes) {
      shards.emplace_back().offsets = {0};
    }
    shards.back().tensors.push_back(tensor);
    shards.back().types.push_back(type);
    shards.back().offsets.push_back(shards.back().offsets.back() + bytes);
  }
  for (size_t i = 0; i < shards.size(); ++i) {
    shards[i].name = SafetensorsName(i, shards.size());
    shards[i].head = ShardHead(shards[i], type);
  }
  return shards;
}

absl::StatusOr<int64_t> WriteModelFolder(const WeightFilesOptions& options) {
  std::vector<WeightShard> shards;
  if (options.gguf) {
    shards.push_back(LayOutGguf(*options.shape, options.layers, options.type));
  } else {
    shards =
        LayOutShards(TensorsOf(*options.shape, options.layers), options.type, options.shard_bytes);
  }
  int64_t bytes = 0;
  for (const WeightShard& shard : shards) bytes += shard.bytes();
  QUIRE_ASSIGN_OR_RETURN(const bool made, TakeFolder(options.folder));
  OutputFolder folder(options.folder, made);
  const absl::Status room = CheckRoomOnDisk(options.folder, bytes);
  if (!room.ok()) {
    return absl::ResourceExhaustedError(
        AbslView(StatusMessage(room) + ", or cut the model with --layers"));
  }
  const absl::Status status = WriteAll(options, shards, folder);
  if (absl::IsResourceExhausted(status)) {
    return absl::ResourceExhaustedError(StatusMessage(status) + "; the model takes " +
                                        std::to_string(bytes) + " bytes");
  }
  QUIRE_RETURN_IF_ERROR(status);
  folder.Keep();
  return bytes;
}

}  // namespace quire::cli
