// A piece of memory that processes share: an unnamed file, passed on by its descriptor.
//
// Owned by the process that made or opened it; the mapping and this process's descriptor are
// released with it, and the memory itself with the last of them, so that nothing is left behind
// however a process ends. Its size is sealed: no process can make a mapped page vanish under
// another.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>

namespace quire::kernels {

class SharedMemory {
 public:
  // `bytes` zeros. Null with `error`: the system has none.
  static std::unique_ptr<SharedMemory> Create(const char* name, size_t bytes, std::string& error);
  // The memory behind a descriptor that another process made; takes the descriptor. Null with
  // `error` when it is none, is not sealed, or has less than `least_bytes`.
  static std::unique_ptr<SharedMemory> Open(int fd, size_t least_bytes, std::string& error);

  ~SharedMemory();
  SharedMemory(const SharedMemory&) = delete;
  SharedMemory& operator=(const SharedMemory&) = delete;

  // Page-aligned.
  std::span<std::byte> bytes() const { return bytes_; }
  // Closed on exec: a process that starts another one passes a copy.
  int fd() const { return fd_; }

 private:
  SharedMemory(int fd, std::span<std::byte> bytes) : fd_(fd), bytes_(bytes) {}
  static std::unique_ptr<SharedMemory> Map(int fd, size_t bytes, std::string& error);

  int fd_;
  std::span<std::byte> bytes_;
};

}  // namespace quire::kernels
