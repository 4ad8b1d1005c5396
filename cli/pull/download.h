// Downloads files: several connections, parts in parallel, resumed at any byte, digests checked.
//
// Fetch blocks its thread, which reports progress; it starts and joins threads of its own: one for
// each connection, and one that hashes what has arrived without a gap.
//  1. A file gets its name only after its size and digest were checked.
//  2. A byte that is in a part file is never asked for again, unless the server refuses ranges.
//  3. Every wait ends: for bytes after 30 s without one, for a server that asks to wait after
//  kMaxWaitMs, and after kMaxTries in a row without a new byte.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "cli/pull/digest.h"
#include "cli/pull/http_session.h"
#include "common/status.h"

namespace quire::pull {

inline constexpr int kMaxTries = 6;
inline constexpr int64_t kMaxWaitMs = 60'000;
inline constexpr int kMaxConnections = 32;

struct FileJob {
  std::string name;                                               // for people
  Address address;                                                // may lead on to another one
  std::vector<std::pair<std::string, std::string>> headers = {};  // for that address's host alone
  int64_t size = 0;
  DigestKind digest_kind = DigestKind::kNone;
  std::string digest = {};    // in hexadecimal
  std::string part_path;      // where its parts gather
  std::string final_path;     // what it becomes
  std::string identity = {};  // of its content
};

struct FetchOptions {
  int connections = 8;
  double bytes_per_second = 0;  // of all together; 0: no limit
  std::string authorities = {};
  Reach reach = {};
  // What an error advises where a server refuses a file.
  std::string denied_advice =
      "it is private or gated; HF_TOKEN carries the token of an account that may read it";
  const std::atomic<bool>* cancelled = nullptr;  // outlives the call
  // Called a few times a second, with bytes that are here and bytes of all files.
  std::function<void(int64_t here, int64_t total)> on_progress = {};
};

struct FetchTotals {
  int64_t fetched_bytes = 0;  // taken from the network by this call
  int64_t retries = 0;
};

// UNAVAILABLE, DATA_LOSS (another digest), PERMISSION_DENIED, NOT_FOUND, RESOURCE_EXHAUSTED (the
// disk is full) or CANCELLED, with the file's name; what has arrived stays for the next call.
absl::StatusOr<FetchTotals> Fetch(const std::vector<FileJob>& files, const FetchOptions& options);

// RESOURCE_EXHAUSTED where the disk of `folder` has less room than `bytes` and some to spare.
absl::Status CheckRoom(const std::string& folder, int64_t bytes);

}  // namespace quire::pull
