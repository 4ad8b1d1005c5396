// Orders that change the adapters of a worker at run time, and what becomes of them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "common/wire/hello.h"

namespace quire {

inline constexpr size_t kMaxAdapterPathBytes = 4096;
inline constexpr int kMaxHeldAdapters = 4096;  // without a name

struct AdapterOrder {
  enum class Kind : uint8_t { kLoad, kUnload };
  uint64_t number = 0;  // unique in its router
  Kind kind = Kind::kLoad;
  std::string name;
  std::string path;       // to load: a folder on the worker's machine
  bool replace = false;   // to load: a name that is served means the new content from now on
  bool any_path = false;  // to load: the operator is on the worker's machine
};

enum class AdapterVerdict : uint8_t {
  kFailed,  // also what this version does not know
  kDone,
  kAlready,    // the name is served, and `replace` was not set
  kInvalid,    // the worker cannot serve it, or not from there
  kNotFound,   // no such folder, no such name
  kNoSlot,     // every slot is in use or kept
  kQueueFull,  // too many orders wait
};

struct AdapterResult {
  uint64_t number = 0;
  AdapterVerdict verdict = AdapterVerdict::kFailed;
  std::string message;  // one line, where it is not kDone
  std::string digest;   // of the adapter that has the name now; empty: none
  uint32_t retry_after_ms = 0;
};

// All adapters of a worker from now on.
struct AdaptersChanged {
  std::vector<ServedAdapter> adapters;
  std::vector<std::string> held;  // digests that have no name any more, and are served all the same
};

}  // namespace quire
