// A file mapped read-only into memory, where weights are read in place; or a copy of it, which
// stays whole whatever becomes of the file.
//
// Owned by ModelFiles; read from any thread once open, Release from the loading thread.
// 1. The bytes stay valid until the object ends; Release only drops resident pages, it never
// unmaps.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "absl/status/statusor.h"
#include "worker/load/model_roots.h"

namespace quire::load {

class MappedFile {
 public:
  // `path` is for messages. FAILED_PRECONDITION naming it when the file is empty or cannot be
  // mapped.
  static absl::StatusOr<std::unique_ptr<MappedFile>> Map(const OpenFile& file,
                                                         const std::string& path);
  // The same, of a copy: cutting a mapped file short would end the process that reads it. Bytes of
  // a copy are not released.
  static absl::StatusOr<std::unique_ptr<MappedFile>> Copy(const OpenFile& file,
                                                          const std::string& path);
  ~MappedFile();
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  const std::string& path() const { return path_; }
  std::span<const std::byte> bytes() const { return {data_, size_}; }
  bool Contains(const void* data) const;

  // Lets the kernel drop the whole pages inside the range; a later read fetches them from disk
  // again.
  void Release(const void* data, int64_t bytes) const;

 private:
  MappedFile(std::string path, std::byte* data, size_t size);

  std::string path_;
  std::byte* data_;
  size_t size_;
};

// Drops the whole resident pages inside [data, data + bytes).
void DropPages(const void* data, int64_t bytes);

}  // namespace quire::load
