// Members of a server's JSON as a terminal shows them: missing ones are empty or −1, text is plain
// and short.
//
// Pure functions, any thread.
#pragma once

#include <string>
#include <string_view>

#include "common/json/json.h"

namespace quire::cli {

std::string Text(const json::Object& object, std::string_view name);
double Number(const json::Object& object, std::string_view name);      // −1 where it is missing
std::string Count(const json::Object& object, std::string_view name);  // "0" where it is missing

}  // namespace quire::cli
