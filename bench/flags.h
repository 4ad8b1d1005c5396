// The flags of a bench program: names, and the variables that they fill.
//
// Called once, by main.
#pragma once

#include <cstdio>
#include <initializer_list>
#include <string>
#include <vector>

#include "common/config/schema.h"

namespace quire::bench {

struct NamedFlag {
  const char* name;
  config::Target target;
};

// False, and why on stderr, when the arguments are none of these flags or hold no value for them.
inline bool ParseFlags(const char* program, const std::vector<std::string>& args,
                       std::initializer_list<NamedFlag> flags) {
  config::Schema schema(program, "Measures, and prints one line of JSON.");
  for (const NamedFlag& named : flags) {
    config::Flag flag;
    flag.name = named.name;
    flag.target = named.target;
    schema.Add(flag);
  }
  const auto parsed = schema.Parse(args, {});
  if (parsed.ok()) return true;
  std::fprintf(stderr, "%s: %s\n", program, StatusMessage(parsed.status()).c_str());
  return false;
}

}  // namespace quire::bench
