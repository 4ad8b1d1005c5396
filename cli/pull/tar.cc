#include "cli/pull/tar.h"

#include <zlib.h>

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <fstream>
#include <memory>
#include <optional>

#include "cli/pull/download.h"
#include "cli/pull/hub.h"
#include "cli/pull/store_pull.h"

namespace quire::pull {
namespace {

namespace fs = std::filesystem;

constexpr size_t kBlock = 512;
constexpr size_t kCopyBytes = 1u << 20;

struct CloseGzip {
  void operator()(gzFile file) const { gzclose(file); }
};

struct TarHeader {
  std::string name;
  int64_t size = 0;
  char type = '0';
};

// A field of a header, up to its zero.
std::string_view FieldOf(std::string_view block, size_t begin, size_t size) {
  const std::string_view field = block.substr(begin, size);
  return field.substr(0, field.find('\0'));
}

// Octal digits, or GNU's binary form for what has too many of them.
std::optional<int64_t> NumberOf(std::string_view block, size_t begin, size_t size) {
  if ((static_cast<unsigned char>(block[begin]) & 0x80) != 0) {
    int64_t value = static_cast<unsigned char>(block[begin]) & 0x7f;
    for (size_t i = 1; i < size; ++i) {
      if (value > (kMaxFileBytes >> 8)) return std::nullopt;
      value = value << 8 | static_cast<unsigned char>(block[begin + i]);
    }
    return value;
  }
  std::string_view field = FieldOf(block, begin, size);
  while (field.starts_with(' ')) field.remove_prefix(1);
  while (field.ends_with(' ')) field.remove_suffix(1);
  int64_t value = 0;
  const auto [end, error] = std::from_chars(field.data(), field.data() + field.size(), value, 8);
  if (field.empty() || error != std::errc() || end != field.data() + field.size() || value < 0) {
    return std::nullopt;
  }
  return value;
}

bool HasRightSum(std::string_view block) {
  int64_t sum = 8 * ' ';
  for (size_t i = 0; i < kBlock; ++i) {
    if (i < 148 || i >= 156) sum += static_cast<unsigned char>(block[i]);
  }
  return NumberOf(block, 148, 8) == sum;
}

class Unpacking {
 public:
  Unpacking(const std::string& archive, const std::string& folder,
            const std::set<std::string>& taken, const std::atomic<bool>& cancelled)
      : archive_(archive), folder_(folder), cancelled_(cancelled), paths_(taken) {}

  absl::StatusOr<std::vector<TarFile>> Run() {
    const absl::Status status = Walk();
    if (status.ok()) return std::move(files_);
    std::error_code error;
    for (const TarFile& file : files_) fs::remove(folder_ + "/" + file.path, error);
    return status;
  }

 private:
  absl::Status Walk() {
    input_.reset(gzopen(archive_.c_str(), "rb"));
    if (input_ == nullptr) return absl::UnavailableError(AbslView(archive_ + ": cannot be read"));
    std::error_code error;
    const auto packed = static_cast<int64_t>(fs::file_size(archive_, error));
    room_ = (error ? 0 : packed) * kMaxTarExpansion + static_cast<int64_t>(kBlock);
    for (size_t count = 0;; ++count) {
      std::string block(kBlock, '\0');
      QUIRE_RETURN_IF_ERROR(Read(block.data(), kBlock));
      if (block.find_first_not_of('\0') == std::string::npos) return absl::OkStatus();
      if (count >= kMaxTarEntries) {
        return absl::ResourceExhaustedError("an archive of the model has more than 10,000 entries");
      }
      QUIRE_ASSIGN_OR_RETURN(const TarHeader header, Parse(block));
      room_ -= header.size + static_cast<int64_t>(kBlock);
      if (room_ < 0) {
        return absl::ResourceExhaustedError(
            "an archive of the model has more than 32 bytes for each of its own");
      }
      QUIRE_RETURN_IF_ERROR(Take(header));
    }
  }

  absl::StatusOr<TarHeader> Parse(std::string_view block) {
    TarHeader header;
    const std::optional<int64_t> size = NumberOf(block, 124, 12);
    if (!HasRightSum(block) || !size) {
      return InvalidArgument("an archive of the model is no tar, or is damaged");
    }
    header.size = *size;
    header.type = block[156] == '\0' ? '0' : block[156];
    header.name = FieldOf(block, 0, 100);
    const std::string_view prefix = FieldOf(block, 345, 155);
    if (block.substr(257, 5) == "ustar" && block[262] == '\0' && !prefix.empty()) {
      header.name = std::string(prefix) + "/" + header.name;
    }
    const bool is_extra = header.type == 'x' || header.type == 'g' || header.type == 'L';
    if (!is_extra) {
      if (!long_name_.empty()) header.name = std::exchange(long_name_, "");
      if (long_size_ >= 0) header.size = std::exchange(long_size_, -1);
    }
    if (header.size > kMaxFileBytes) {
      return InvalidArgument("an entry of an archive is larger than 4 TiB");
    }
    while (header.name.starts_with("./")) header.name.erase(0, 2);
    return header;
  }

  absl::Status Take(const TarHeader& header) {
    if (header.type == 'x' || header.type == 'g' || header.type == 'L') return TakeExtra(header);
    if (header.type == '5') return Skip(header.size);
    QUIRE_RETURN_IF_ERROR(Annotate(CheckFileName(header.name), "an archive of the model"));
    if (header.type != '0' && header.type != '7') {
      return InvalidArgument("an archive of the model has " + header.name +
                             ", which is a link or a special file; a model has none");
    }
    if (!IsWeight(header.name) && !IsSetting(header.name)) return Skip(header.size);
    return Annotate(Write(header), header.name);
  }

  // What PAX and GNU say of the entry that follows.
  absl::Status TakeExtra(const TarHeader& header) {
    if (header.size > static_cast<int64_t>(kMaxTarExtraBytes)) {
      return InvalidArgument("an archive of the model has a header that is too long");
    }
    std::string text(static_cast<size_t>(header.size), '\0');
    QUIRE_RETURN_IF_ERROR(Read(text.data(), text.size()));
    QUIRE_RETURN_IF_ERROR(SkipPadding(header.size));
    if (header.type == 'g') return absl::OkStatus();
    if (header.type == 'L') {
      long_name_ = text.substr(0, text.find('\0'));
      return absl::OkStatus();
    }
    std::string_view rest = text;  // "LENGTH NAME=VALUE\n"…
    while (!rest.empty()) {
      size_t length = 0;
      const auto [end, error] = std::from_chars(rest.data(), rest.data() + rest.size(), length);
      const auto digits = static_cast<size_t>(end - rest.data());
      if (error != std::errc() || length <= digits + 1 || length > rest.size()) {
        return InvalidArgument("an archive of the model has a header that is no PAX");
      }
      const std::string_view record = rest.substr(digits + 1, length - digits - 2);
      rest.remove_prefix(length);
      if (record.starts_with("path=")) long_name_ = record.substr(5);
      if (!record.starts_with("size=")) continue;
      const char* last = record.data() + record.size();
      const auto [stop, wrong] = std::from_chars(record.data() + 5, last, long_size_);
      if (wrong != std::errc() || stop != last || long_size_ < 0) {
        return InvalidArgument("an archive of the model has a header that is no PAX");
      }
    }
    return absl::OkStatus();
  }

  absl::Status Write(const TarHeader& header) {
    const std::string path = folder_ + "/" + header.name, beside = path + ".quire-new";
    if (!paths_.insert(header.name).second) return InvalidArgument("the model has it twice");
    QUIRE_RETURN_IF_ERROR(MakeFolder(fs::path(path).parent_path()));
    QUIRE_RETURN_IF_ERROR(CheckRoom(folder_, header.size));
    std::error_code error;
    absl::Status status;
    {
      std::ofstream file(beside, std::ios::binary | std::ios::trunc);
      std::string buffer(kCopyBytes, '\0');
      for (int64_t left = header.size; left > 0 && status.ok();) {
        const auto count = static_cast<size_t>(std::min<int64_t>(left, kCopyBytes));
        status = Read(buffer.data(), count);
        if (status.ok()) file.write(buffer.data(), static_cast<std::streamsize>(count));
        left -= static_cast<int64_t>(count);
      }
      file.close();
      if (status.ok() && !file.good()) status = absl::UnavailableError("cannot be written");
    }
    if (status.ok()) fs::rename(beside, path, error);
    if (error) status = absl::UnavailableError(AbslView(error.message()));
    if (!status.ok()) {
      fs::remove(beside, error);
      return status;
    }
    files_.push_back({header.name, header.size});
    return SkipPadding(header.size);
  }

  absl::Status Skip(int64_t size) {
    std::string buffer(kCopyBytes, '\0');
    for (int64_t left = size; left > 0;) {
      const auto count = static_cast<size_t>(std::min<int64_t>(left, kCopyBytes));
      QUIRE_RETURN_IF_ERROR(Read(buffer.data(), count));
      left -= static_cast<int64_t>(count);
    }
    return SkipPadding(size);
  }

  absl::Status SkipPadding(int64_t size) {
    char padding[kBlock];
    const auto block = static_cast<int64_t>(kBlock);
    return Read(padding, static_cast<size_t>((block - size % block) % block));
  }

  absl::Status Read(char* buffer, size_t size) {
    if (cancelled_) return absl::CancelledError("stopped");
    const int count = gzread(input_.get(), buffer, static_cast<unsigned>(size));
    if (count == static_cast<int>(size)) return absl::OkStatus();
    return absl::DataLossError("an archive of the model ends early, or is damaged");
  }

  const std::string& archive_;
  const std::string& folder_;
  const std::atomic<bool>& cancelled_;
  std::unique_ptr<std::remove_pointer_t<gzFile>, CloseGzip> input_;
  std::vector<TarFile> files_;
  std::set<std::string> paths_;
  std::string long_name_;
  int64_t long_size_ = -1;
  int64_t room_ = 0;  // bytes that entries may still have
};

}  // namespace

absl::StatusOr<std::vector<TarFile>> UnpackModel(const std::string& archive,
                                                 const std::string& folder,
                                                 const std::set<std::string>& taken,
                                                 const std::atomic<bool>& cancelled) {
  return Unpacking(archive, folder, taken, cancelled).Run();
}

}  // namespace quire::pull
