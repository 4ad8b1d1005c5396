#include "kernels/collectives/shared_memory.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

namespace quire::kernels {
namespace {

constexpr int kSeals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;

std::string SystemError(const char* what) {
  return std::string("shared memory: ") + what + ": " + std::strerror(errno);
}

}  // namespace

std::unique_ptr<SharedMemory> SharedMemory::Map(int fd, size_t bytes, std::string& error) {
  void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (memory == MAP_FAILED) {
    error = SystemError("it cannot be mapped");
    close(fd);
    return nullptr;
  }
  return std::unique_ptr<SharedMemory>(
      new SharedMemory(fd, {static_cast<std::byte*>(memory), bytes}));
}

std::unique_ptr<SharedMemory> SharedMemory::Create(const char* name, size_t bytes,
                                                   std::string& error) {
  const int fd = memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING);
  if (fd < 0) {
    error = SystemError("none can be made");
    return nullptr;
  }
  if (ftruncate(fd, static_cast<off_t>(bytes)) != 0 || fcntl(fd, F_ADD_SEALS, kSeals) != 0) {
    error = SystemError("it cannot be sized");
    close(fd);
    return nullptr;
  }
  return Map(fd, bytes, error);
}

std::unique_ptr<SharedMemory> SharedMemory::Open(int fd, size_t least_bytes, std::string& error) {
  struct stat status {};
  if (fstat(fd, &status) != 0) {
    error = SystemError("the descriptor that was inherited is none");
    return nullptr;
  }
  const int seals = fcntl(fd, F_GET_SEALS);
  if (seals < 0 || (seals & kSeals) != kSeals) {
    error = "shared memory: the descriptor that was inherited is another's";
    close(fd);
    return nullptr;
  }
  if (static_cast<size_t>(status.st_size) < least_bytes) {
    error = "shared memory: it has " + std::to_string(status.st_size) + " bytes, " +
            std::to_string(least_bytes) + " are needed";
    close(fd);
    return nullptr;
  }
  fcntl(fd, F_SETFD, FD_CLOEXEC);
  return Map(fd, static_cast<size_t>(status.st_size), error);
}

SharedMemory::~SharedMemory() {
  munmap(bytes_.data(), bytes_.size());
  close(fd_);
}

}  // namespace quire::kernels
