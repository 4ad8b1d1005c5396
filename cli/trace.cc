// `quire trace`: what became of one request, from a router's admin port.
#include <cstdio>

#include "cli/admin_client.h"
#include "cli/commands.h"
#include "cli/timeline.h"

namespace quire::cli {
namespace {

// As a part of a path.
std::string PercentEncoded(const std::string& id) {
  std::string out;
  for (const char c : id) {
    const bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                       c == '-' || c == '_' || c == '.' || c == '~';
    if (plain) {
      out += c;
      continue;
    }
    char code[4];
    std::snprintf(code, sizeof(code), "%%%02X", static_cast<unsigned char>(c));
    out += code;
  }
  return out;
}

}  // namespace

int RunTrace(const CommandInputs& inputs) {
  constexpr size_t kMaxIdBytes = 512;
  AdminOptions admin;
  std::string id;
  bool json = false;
  config::Schema schema("quire trace",
                        "Shows the life of a request: when it waited, which workers had it, when "
                        "tokens came. Without an ID it lists the requests that a router knows.");
  schema.AddPositional(
      {.name = "ID",
       .help = "The request's x-request-id, as the answer's header and the logs name it.",
       .target = &id},
      false);
  schema.Group("Router");
  AddAdminFlags(admin, schema, "none");
  schema.Add({.name = "json", .help = "Writes the router's JSON.", .target = &json});
  if (const std::optional<int> code = Begin(inputs, schema, "trace")) return *code;
  if (admin.url.empty()) {
    return Failed("trace", InvalidArgument("--admin-url is missing: start the router with "
                                           "--admin-port and --admin-token-file, and name it as "
                                           "http://127.0.0.1:PORT"));
  }
  if (id.size() > kMaxIdBytes) {
    return Failed("trace", InvalidArgument("ID: must be at most 512 bytes"));
  }
  const std::string path = id.empty() ? "/admin/requests" : "/admin/requests/" + PercentEncoded(id);
  const absl::StatusOr<std::string> body = AskAdmin(admin, path, *inputs.interrupted);
  if (!body.ok()) {
    // No such request is no unusable model: the command has failed.
    Failed("trace", body.status());
    return absl::IsInvalidArgument(body.status()) ? 2 : absl::IsCancelled(body.status()) ? 130 : 1;
  }
  if (json) {
    std::printf("%s\n", body->c_str());
    return 0;
  }
  const absl::StatusOr<std::string> text =
      id.empty() ? RequestListText(*body) : TimelineText(*body);
  if (!text.ok()) return Failed("trace", absl::InternalError(text.status().message()));
  std::fputs(text->c_str(), stdout);
  return 0;
}

}  // namespace quire::cli
