// A schema and its settings as text: for other programs as JSON, for people as a table.
//
// Pure functions, any thread. ParseDescription reads the output of a sibling program.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "common/config/schema.h"

namespace quire::config {

// One line, without its end.
std::string DescriptionJson(const Description& description);
// INVALID_ARGUMENT when the text is not such a line.
absl::StatusOr<Description> ParseDescription(std::string_view json);

// Each setting with its value and its source: default, file, environment or flag. A default that is
// computed later is described in words.
std::string SettingsTable(const Description& description, const ParseResult& parsed);
std::string SettingsJson(const Description& description, const ParseResult& parsed);

// What --help, --version, --describe and --show-config print, with its line end; empty when none of
// them was given.
std::optional<std::string> AnswerText(const Schema& schema, const ParseResult& parsed);

}  // namespace quire::config
