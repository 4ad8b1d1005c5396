// The flags of every program and command, queried from the programs: completions, manuals and the
// reference are made from them.
//
// Blocking, on the calling thread. Nothing here has a list of flags of its own.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "common/config/schema.h"
#include "common/status.h"

namespace quire::cli {

// Of one program, or of a command of one.
absl::StatusOr<config::Description> DescribeProgram(const std::string& program,
                                                    const std::string& command = "");
// The commands of quire in the order of its help, then quire-router and quire-worker.
absl::StatusOr<std::vector<config::Description>> DescribeAll();

// A script for "bash", "zsh" or "fish"; pure.
std::string CompletionScript(std::string_view shell,
                             const std::vector<config::Description>& programs);

// A page of section 1 for man; pure.
std::string ManualPage(const config::Description& program);
// The page of quire itself.
std::string ManualOverview();
// The same for people who read the documents: one section for each program; pure.
std::string ReferenceText(const std::vector<config::Description>& programs);

}  // namespace quire::cli
