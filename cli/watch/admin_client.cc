#include "cli/watch/admin_client.h"

#include <fstream>

#include "cli/ask.h"
#include "cli/format.h"

namespace quire::cli {
namespace {

// The one word of the file.
absl::StatusOr<std::string> ReadToken(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::string text(kMaxTokenFileBytes, '\0');
  file.read(text.data(), static_cast<std::streamsize>(text.size()));
  text.resize(static_cast<size_t>(std::max<std::streamsize>(file.gcount(), 0)));
  const size_t first = text.find_first_not_of(" \t\r\n");
  if (first == std::string::npos) {
    return InvalidArgument("--admin-token-file: " + path + " cannot be read, or is empty");
  }
  text = text.substr(first, text.find_last_not_of(" \t\r\n") - first + 1);
  for (const char c : text) {
    if (c > 0x20 && c < 0x7f) continue;
    return InvalidArgument("--admin-token-file: " + path + " must hold one word");
  }
  return text;
}

}  // namespace

void AddAdminFlags(AdminOptions& options, config::Schema& schema, const char* default_url) {
  schema.Add({.name = "admin-url",
              .help = "The router's admin port (--admin-port), or, of a router without keys on "
                      "loopback, its own port.",
              .target = &options.url,
              .default_text = default_url});
  schema.Add({.name = "admin-token-file",
              .help = "File with the token that the admin port asks for.",
              .target = &options.token_file,
              .value_name = "FILE",
              .default_text = "none"});
}

absl::StatusOr<std::string> AskAdmin(const AdminOptions& options, const std::string& path,
                                     const std::atomic<bool>& cancelled) {
  client::HttpRequest request;
  request.path = path;
  QUIRE_ASSIGN_OR_RETURN(const client::Url url, client::ParseUrl(options.url));
  if (!options.token_file.empty()) {
    QUIRE_ASSIGN_OR_RETURN(request.api_key, ReadToken(options.token_file));
  }
  QUIRE_ASSIGN_OR_RETURN(
      client::HttpAnswer answer,
      client::Exchange(url, request, cancelled, [](std::string_view) { return true; }));
  if (answer.status == 200) return std::move(answer.body);
  const std::string said = PlainText(ErrorOf(answer.body, answer.status), 300);
  if (answer.status == 404) return absl::NotFoundError(AbslView(said));
  if (options.token_file.empty() && (answer.status == 401 || answer.status == 403)) {
    return InvalidArgument("--admin-token-file is missing: " + options.url +
                           " asks for the token of operators: give the file that the router was "
                           "given under that name, and the port of --admin-port as --admin-url");
  }
  return InvalidArgument("--admin-url " + options.url + ": " + said);
}

}  // namespace quire::cli
