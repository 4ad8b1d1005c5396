// What pulls have put into a folder of the store: FOLDER/.files has a line for each file, with the
// digest of what it was made of.
//
// Blocking, on the calling thread, under the folder's lock. A record that cannot be read counts as
// none, and costs a look at the files again.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "cli/pull/digest.h"
#include "common/status.h"

namespace quire::pull {

inline constexpr size_t kMaxRecordBytes = 8u << 20;

struct PlacedFile {
  std::string made_of;  // a digest of SHA-256, in hexadecimal
  int64_t size = 0;
  std::string path;  // below the folder
};

std::vector<PlacedFile> ReadPlaced(const std::string& folder);

// The files of `placed` that were made of it, where all of them are still there; else none.
std::vector<PlacedFile> StillThere(const std::string& folder, const std::vector<PlacedFile>& placed,
                                   std::string_view made_of);

// Notes `now`, and removes the files of `before` that are no longer among them.
absl::Status WritePlaced(const std::string& folder, const std::vector<PlacedFile>& before,
                         const std::vector<PlacedFile>& now);

// Whether the file is there with this size and this digest of SHA-256.
bool HasContent(const std::string& path, int64_t size, std::string_view digest);

}  // namespace quire::pull
