// The adapters that --lora-dir says a worker should have: each folder in it, by its name, or what
// adapters.json in it lists.
//
// Any thread; values. Folder and file are hostile input, and may change while they are read.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"

namespace quire {

inline constexpr size_t kMaxDesiredBytes = 1u << 20;  // of adapters.json
inline constexpr size_t kMaxDesiredAdapters = 512;    // the same as names of a worker
inline constexpr size_t kMaxDesiredEntries = 4096;    // of the folder or the list, looked at
inline constexpr const char* kDesiredFile = "adapters.json";

struct DesiredAdapter {
  std::string name;  // any text
  std::string path;  // as it was written: relative to the folder, or anything else
  bool operator==(const DesiredAdapter&) const = default;
};

struct DesiredAdapters {
  std::vector<DesiredAdapter> adapters;  // each name once, in their order
  // Entries that say nothing usable, with why.
  std::vector<std::pair<std::string, std::string>> problems;
};

// What the list `text` of the file `path` says; INVALID_ARGUMENT: it is no list of at most
// kMaxDesiredEntries.
absl::StatusOr<DesiredAdapters> ParseDesiredAdapters(std::string_view text,
                                                     const std::string& path);

// An error where nothing can be known: the folder or the list cannot be read.
absl::StatusOr<DesiredAdapters> ReadDesiredAdapters(const std::string& dir);

}  // namespace quire
