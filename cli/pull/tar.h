// Takes the files of a model out of a tar archive, which may be packed by gzip.
//
// Blocking, on the calling thread. An archive is hostile input: a link, a device, a name that
// leaves the folder, an entry past a bound and a header whose sum is wrong end the work with an
// error.
//  1. Of all entries only weights, settings and tokenizers become files; pickles and code do not.
//  2. After an error nothing is left of what the call has written.
#pragma once

#include <atomic>
#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "common/status.h"

namespace quire::pull {

inline constexpr size_t kMaxTarEntries = 10'000;
inline constexpr size_t kMaxTarExtraBytes = 64u << 10;  // of a long name, or of a PAX header
inline constexpr int64_t kMaxTarExpansion = 32;  // bytes of entries for each byte of the archive

struct TarFile {
  std::string path;  // below the folder
  int64_t size = 0;
};

// INVALID_ARGUMENT, RESOURCE_EXHAUSTED (a bound, or the disk) or DATA_LOSS (it ends early), with
// the entry's name; CANCELLED when `cancelled` becomes true. No file may have one of the paths
// `taken`.
absl::StatusOr<std::vector<TarFile>> UnpackModel(const std::string& archive,
                                                 const std::string& folder,
                                                 const std::set<std::string>& taken,
                                                 const std::atomic<bool>& cancelled);

}  // namespace quire::pull
