// The output of another of our programs: runs it to its end and reads its standard output.
//
// Blocking, on the calling thread. The child shares the terminal's process group, so that Ctrl-C
// ends it too, and gets SIGKILL when its parent dies.
#pragma once

#include <string>
#include <vector>

#include "common/config/schema.h"
#include "common/status.h"

namespace quire::config {

inline constexpr size_t kMaxOutputBytes = 4u << 20;

enum class StandardError { kOwn, kTaken };

struct ProgramOutput {
  std::string text;   // standard output, and standard error where it is taken in as well
  int exit_code = 0;  // 128 + signal for a signal
};

// NOT_FOUND when the program is not there; RESOURCE_EXHAUSTED past kMaxOutputBytes.
absl::StatusOr<ProgramOutput> OutputOf(const std::string& program,
                                       const std::vector<std::string>& args,
                                       const Environment& environment,
                                       StandardError standard_error = StandardError::kOwn);

// The same for what must work, such as --help: INTERNAL for another exit code than 0.
absl::StatusOr<std::string> TextOf(const std::string& program,
                                   const std::vector<std::string>& args);

// This process becomes that program; returns only on failure.
absl::Status Become(const std::string& program, const std::vector<std::string>& args,
                    const Environment& environment);

// The path of the running program.
std::string ExecutablePath();

// One of our programs, in the folder of this one.
std::string SiblingPath(const std::string& name);

}  // namespace quire::config
