#include "worker/own_name.h"

#include <limits.h>
#include <unistd.h>

#include <algorithm>
#include <iterator>
#include <string_view>

namespace quire {
namespace {

// The system's own name: in a pod the pod's name.
std::string MachineName() {
  char name[HOST_NAME_MAX + 1] = {};
  if (gethostname(name, sizeof(name) - 1) != 0 || name[0] == '\0') return "worker";
  return name;
}

}  // namespace

std::string OwnName(const std::string& listen, int port) {
  const std::string host = listen.substr(0, listen.rfind(':'));
  constexpr std::string_view kAnyMachines[] = {"0.0.0.0", "[::]", "127.0.0.1", "[::1]",
                                               "localhost"};
  const bool says_nothing =
      std::find(std::begin(kAnyMachines), std::end(kAnyMachines), host) != std::end(kAnyMachines);
  return MachineName() + (says_nothing ? "" : "/" + host) + ":" + std::to_string(port);
}

}  // namespace quire
