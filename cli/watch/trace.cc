// `quire trace`: what happened to one request, from a router.
#include <cstdio>

#include "cli/commands.h"
#include "cli/format.h"
#include "cli/watch/admin_client.h"
#include "cli/watch/timeline.h"
#include "cli/watch/worker_lines.h"

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

// The workers' records of the request that a router reported.
absl::StatusOr<std::string> WorkerPart(const std::string& body, const std::string& id,
                                       const std::vector<std::string>& files) {
  std::vector<std::string> lines;
  for (const std::string& file : files) {
    QUIRE_ASSIGN_OR_RETURN(std::vector<std::string> found, LinesAbout(file, id));
    lines.insert(lines.end(), std::make_move_iterator(found.begin()),
                 std::make_move_iterator(found.end()));
  }
  return WorkerPartText(body, lines);
}

}  // namespace

int RunTrace(const CommandInputs& inputs) {
  constexpr size_t kMaxIdBytes = 512;
  AdminOptions admin;
  std::string id;
  bool json = false;
  std::vector<std::string> worker_logs;
  config::Schema schema("quire trace",
                        "Shows the life of a request: when it waited, which workers had it, when "
                        "tokens came. Without an ID it lists the requests that a router knows.");
  schema.AddPositional(
      {.name = "ID",
       .help = "The request's x-request-id, as the answer's header and the logs name it.",
       .target = &id},
      false);
  schema.Group("Router");
  admin.url = "http://127.0.0.1:8000";
  AddAdminFlags(admin, schema, "http://127.0.0.1:8000");
  schema.Add({.name = "worker-log",
              .help = "A worker's --request-log, of which its part of the request is shown; quire "
                      "serve's router and workers write to one.",
              .target = &worker_logs,
              .value_name = "FILE",
              .default_text = "none"});
  schema.Add({.name = "json", .help = "Writes the router's JSON.", .target = &json});
  if (const std::optional<int> code = Begin(inputs, schema, "trace")) return *code;
  if (id.size() > kMaxIdBytes) {
    return Failed("trace", InvalidArgument("ID: must be at most 512 bytes"));
  }
  const std::string path = id.empty() ? "/admin/requests" : "/admin/requests/" + PercentEncoded(id);
  const absl::StatusOr<std::string> body = AskAdmin(admin, path, *inputs.interrupted);
  if (!body.ok()) {
    // An unknown request is not an unusable model: the command has failed.
    Failed("trace", body.status());
    return absl::IsInvalidArgument(body.status()) ? 2 : absl::IsCancelled(body.status()) ? 130 : 1;
  }
  if (json) {
    Show(stdout, *body + "\n");
    return 0;
  }
  const absl::StatusOr<std::string> text =
      id.empty() ? RequestListText(*body) : TimelineText(*body);
  if (!text.ok()) return Failed("trace", absl::InternalError(text.status().message()));
  Show(stdout, *text);
  if (id.empty() || worker_logs.empty()) return 0;
  const absl::StatusOr<std::string> part = WorkerPart(*body, id, worker_logs);
  if (!part.ok()) return Failed("trace", absl::InternalError(part.status().message()));
  Show(stdout, part->empty() ? "\nno worker wrote of it in --worker-log\n" : *part);
  return 0;
}

}  // namespace quire::cli
