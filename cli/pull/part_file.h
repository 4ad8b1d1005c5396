// A file that arrives in chunks, in any order, and outlives whatever ends its download.
//
// Beside PATH, PATH.map counts for each chunk how many of its bytes are there. It is mapped memory,
// so that it holds after the process is killed; after a loss of power the digest of the whole finds
// out.
//
// Threads: chunks are written by one thread each; everything else may be called by any.
//  1. Done(i) bytes from Begin(i) on are in the file before Done says so.
//  2. A map of another size or identity, or one that cannot be true, counts as nothing.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "common/status.h"

namespace quire::pull {

inline constexpr int64_t kMinChunkBytes = 4 << 20;
inline constexpr int64_t kMaxChunkBytes = 32 << 20;

class PartFile {
 public:
  // `identity` names the content: parts of another one are thrown away. `size` is above 0.
  static absl::StatusOr<std::unique_ptr<PartFile>> Open(const std::string& path, int64_t size,
                                                        std::string_view identity);
  ~PartFile();
  PartFile(const PartFile&) = delete;

  int64_t size() const { return size_; }
  int chunks() const { return chunks_; }
  int64_t Begin(int chunk) const { return chunk * chunk_bytes_; }
  int64_t End(int chunk) const { return std::min(size_, Begin(chunk) + chunk_bytes_); }
  int64_t Done(int chunk) const;
  int64_t BytesDone() const;
  // How many bytes from the start on are there without a gap.
  int64_t Prefix() const;

  // Appends to the chunk. OUT_OF_RANGE past its end.
  absl::Status Append(int chunk, std::string_view bytes);
  // Forgets all parts.
  void Restart();
  int generation() const { return generation_; }  // counts Restart

  absl::StatusOr<size_t> Read(int64_t offset, char* buffer, size_t size) const;
  // The whole file gets its name, in one step, and the map goes.
  absl::Status MoveTo(const std::string& path);
  // Takes both files away.
  void Remove();

 private:
  PartFile(std::string path, int64_t size, int fd);
  absl::Status OpenMap(std::string_view identity);

  const std::string path_;
  const int64_t size_;
  const int64_t chunk_bytes_;
  const int chunks_;
  const int fd_;
  char* map_ = nullptr;
  std::atomic<int64_t>* done_ = nullptr;  // in the map
  std::atomic<int> generation_ = 0;
};

}  // namespace quire::pull
