#include "cli/models/weight_files.h"

#include <fcntl.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <mutex>
#include <thread>
#include <utility>

#include "cli/format.h"
#include "cli/models/weight_gguf.h"
#include "common/json/json.h"

namespace quire::cli {
namespace {

namespace fs = std::filesystem;

absl::Status Failed(const std::string& path, const char* what, int error) {
  const std::string text = path + ": " + what + ": " + std::strerror(error);
  if (error == ENOSPC || error == EDQUOT || error == EFBIG) {
    return absl::ResourceExhaustedError(text);
  }
  return absl::FailedPreconditionError(text);
}

class File {
 public:
  explicit File(std::string path)
      : path_(std::move(path)),
        fd_(open(path_.c_str(), O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, 0644)) {}
  ~File() {
    if (fd_ >= 0) close(fd_);
  }
  File(const File&) = delete;
  File& operator=(const File&) = delete;

  absl::Status status() const {
    return fd_ < 0 ? Failed(path_, "cannot be made", errno) : absl::OkStatus();
  }
  // Allocates the space at once where the file system can, so that a full disk is detected before
  // the work.
  absl::Status Reserve(int64_t bytes) const {
    if (fallocate(fd_, 0, 0, bytes) == 0) return absl::OkStatus();
    if (errno != EOPNOTSUPP && errno != ENOSYS) return Failed(path_, "cannot be enlarged", errno);
    return absl::OkStatus();
  }
  // Any thread.
  absl::Status Write(int64_t offset, std::span<const std::byte> bytes) const {
    while (!bytes.empty()) {
      const ssize_t wrote = pwrite(fd_, bytes.data(), bytes.size(), offset);
      if (wrote < 0 && errno == EINTR) continue;
      if (wrote < 0) return Failed(path_, "cannot be written", errno);
      bytes = bytes.subspan(static_cast<size_t>(wrote));
      offset += wrote;
    }
    return absl::OkStatus();
  }
  absl::Status Close() {
    const int fd = std::exchange(fd_, -1);
    return close(fd) == 0 ? absl::OkStatus() : Failed(path_, "cannot be closed", errno);
  }

 private:
  std::string path_;
  int fd_;
};

absl::Status WriteText(const std::string& path, const std::string& text) {
  File file(path);
  QUIRE_RETURN_IF_ERROR(file.status());
  QUIRE_RETURN_IF_ERROR(file.Write(0, std::as_bytes(std::span(text))));
  return file.Close();
}

std::string_view TypeTag(WeightType type) {
  if (type == WeightType::kBf16) return "BF16";
  return type == WeightType::kF16 ? "F16" : "F32";
}

std::string ShardHead(const WeightShard& shard, WeightType type) {
  json::Object object;
  object["__metadata__"] = json::Object{{"format", "pt"}};
  for (size_t i = 0; i < shard.tensors.size(); ++i) {
    json::Array dims;
    for (const int64_t dim : shard.tensors[i].shape) dims.push_back(dim);
    json::Object entry;
    entry["dtype"] = json::BoostView(TypeTag(type));
    entry["shape"] = std::move(dims);
    entry["data_offsets"] = json::Array{shard.offsets[i], shard.offsets[i + 1]};
    object[shard.tensors[i].name] = std::move(entry);
  }
  std::string text = json::Serialize(object);
  text.append((8 - text.size() % 8) % 8, ' ');
  std::string head;
  for (int i = 0; i < 8; ++i) head.push_back(static_cast<char>((text.size() >> (8 * i)) & 0xff));
  return head + text;
}

// The pieces of one shard, which threads draw by a ticket.
class ShardWriter {
 public:
  ShardWriter(const WeightFilesOptions& options, const WeightShard& shard, const File& file)
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
    std::vector<std::thread> helpers;
    for (int i = 1; i < options_.threads; ++i) helpers.emplace_back([this] { Work(); });
    Work();
    for (std::thread& helper : helpers) helper.join();
    return status_;
  }

 private:
  struct Piece {
    size_t tensor;
    int64_t offset, bytes;
  };

  void Work() {
    std::vector<std::byte> buffer(static_cast<size_t>(kPieceBytes));
    for (;;) {
      const size_t ticket = next_.fetch_add(1);
      if (ticket >= pieces_.size() || failed_.load()) return;
      if (const absl::Status status = WritePiece(pieces_[ticket], buffer); !status.ok()) {
        const std::lock_guard lock(mutex_);
        if (!failed_.exchange(true)) status_ = status;
        return;
      }
    }
  }

  absl::Status WritePiece(const Piece& piece, std::vector<std::byte>& buffer) const {
    if (options_.interrupted != nullptr && options_.interrupted->load()) {
      return absl::CancelledError("interrupted: what was written is removed again");
    }
    const ShapeTensor& tensor = shard_.tensors[piece.tensor];
    const WeightType type = shard_.types[piece.tensor];
    const WeightBlock block = BlockOf(type);
    const std::span<std::byte> bytes(buffer.data(), static_cast<size_t>(piece.bytes));
    FillWeights(TensorKey(options_.seed, tensor.name),
                static_cast<uint64_t>(piece.offset / block.bytes * block.values), tensor.spread,
                type, bytes);
    return file_.Write(
        static_cast<int64_t>(shard_.head.size()) + shard_.offsets[piece.tensor] + piece.offset,
        bytes);
  }

  const WeightFilesOptions& options_;
  const WeightShard& shard_;
  const File& file_;
  std::vector<Piece> pieces_;
  std::atomic<size_t> next_ = 0;
  std::atomic<bool> failed_ = false;
  std::mutex mutex_;
  absl::Status status_;  // under mutex_ until the threads are joined
};

absl::Status WriteShard(const WeightFilesOptions& options, const WeightShard& shard) {
  File file(options.folder + "/" + shard.name);
  QUIRE_RETURN_IF_ERROR(file.status());
  QUIRE_RETURN_IF_ERROR(file.Reserve(shard.bytes()));
  QUIRE_RETURN_IF_ERROR(file.Write(0, std::as_bytes(std::span(shard.head))));
  QUIRE_RETURN_IF_ERROR(ShardWriter(options, shard, file).Run());
  return file.Close();
}

std::string IndexText(const std::vector<WeightShard>& shards) {
  int64_t total = 0;
  json::Object map;
  for (const WeightShard& shard : shards) {
    total += shard.offsets.back();
    for (const ShapeTensor& tensor : shard.tensors) map[tensor.name] = json::BoostView(shard.name);
  }
  json::Object index;
  index["metadata"] = json::Object{{"total_size", total}};
  index["weight_map"] = std::move(map);
  return json::Serialize(index) + "\n";
}

// Creates the folder, or uses an empty one. Returns whether it was created.
absl::StatusOr<bool> TakeFolder(const std::string& folder) {
  std::error_code error;
  const bool made = fs::create_directories(folder, error);
  if (error) {
    return absl::InvalidArgumentError(folder + ": cannot be made: " + error.message() +
                                      "; give a new folder");
  }
  fs::directory_iterator entries(folder, error);
  if (error) return absl::InvalidArgumentError(folder + ": cannot be read: " + error.message());
  if (entries != fs::directory_iterator()) {
    return absl::InvalidArgumentError(folder + ": holds " + entries->path().filename().string() +
                                      "; give a new folder or an empty one");
  }
  return made;
}

// The files in a folder while it is written; they are removed when that fails.
class Folder {
 public:
  Folder(std::string path, bool made) : path_(std::move(path)), made_(made) {}
  ~Folder() {
    if (kept_) return;
    std::error_code ignored;
    for (const std::string& name : names_) fs::remove(path_ + "/" + name, ignored);
    if (made_) fs::remove(path_, ignored);  // only an empty one goes
  }
  std::string Path(const std::string& name) {
    names_.push_back(name);
    return path_ + "/" + name;
  }
  void Keep() { kept_ = true; }

 private:
  std::string path_;
  bool made_;
  bool kept_ = false;
  std::vector<std::string> names_;
};

// `path` + ".part" becomes `path`.
absl::Status PutInPlace(const std::string& path) {
  if (rename((path + ".part").c_str(), path.c_str()) == 0) return absl::OkStatus();
  return Failed(path, "cannot be put in its place", errno);
}

absl::Status WriteGguf(const WeightFilesOptions& options, WeightShard file, Folder& folder) {
  const std::string path = folder.Path(file.name);
  file.name += ".part";
  folder.Path(file.name);
  QUIRE_RETURN_IF_ERROR(WriteShard(options, file));
  return PutInPlace(path);
}

absl::Status WriteAll(const WeightFilesOptions& options, const std::vector<WeightShard>& shards,
                      Folder& folder) {
  const ModelShape& shape = *options.shape;
  if (options.type == WeightType::kQ4K) return WriteGguf(options, shards.front(), folder);
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
  const auto number = [](size_t n) {
    std::string digits = std::to_string(n);
    return std::string(5 - std::min<size_t>(5, digits.size()), '0') + digits;
  };
  for (size_t i = 0; i < shards.size(); ++i) {
    shards[i].name = shards.size() == 1 ? "model.safetensors"
                                        : "model-" + number(i + 1) + "-of-" +
                                              number(shards.size()) + ".safetensors";
    shards[i].head = ShardHead(shards[i], type);
  }
  return shards;
}

absl::Status CheckRoom(const std::string& folder, int64_t needed, int64_t free) {
  if (needed <= free) return absl::OkStatus();
  return absl::ResourceExhaustedError(folder + ": the model takes " + std::to_string(needed) +
                                      " bytes (" + BytesText(static_cast<double>(needed)) +
                                      ") and " + BytesText(static_cast<double>(free)) +
                                      " are free there; make room, give another folder, or cut "
                                      "the model with --layers");
}

absl::StatusOr<int64_t> WriteModelFolder(const WeightFilesOptions& options) {
  std::vector<WeightShard> shards;
  if (options.type == WeightType::kQ4K) {
    shards.push_back(LayOutGguf(*options.shape, options.layers));
  } else {
    shards =
        LayOutShards(TensorsOf(*options.shape, options.layers), options.type, options.shard_bytes);
  }
  int64_t bytes = 0;
  for (const WeightShard& shard : shards) bytes += shard.bytes();
  QUIRE_ASSIGN_OR_RETURN(const bool made, TakeFolder(options.folder));
  Folder folder(options.folder, made);
  struct statvfs room = {};
  if (statvfs(options.folder.c_str(), &room) == 0) {
    // Full memory file systems without a limit of their own report 0 blocks of 0: they are not
    // checked.
    const int64_t free = static_cast<int64_t>(room.f_bavail) * static_cast<int64_t>(room.f_frsize);
    if (room.f_blocks > 0) QUIRE_RETURN_IF_ERROR(CheckRoom(options.folder, bytes, free));
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
