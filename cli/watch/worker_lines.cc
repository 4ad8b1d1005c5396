#include "cli/watch/worker_lines.h"

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <map>

#include "cli/format.h"
#include "cli/watch/shown_fields.h"
#include "common/json/json.h"

namespace quire::cli {
namespace {

constexpr size_t kMaxLineBytes = 16384;
constexpr size_t kMaxLines = 4096;

std::string Time(const json::Object& object, std::string_view name) {
  return MillisText(std::max(Number(object, name), 0.0) / 1000);
}

// Router and request number are the wire's key, which both halves of the records have.
bool IsOf(const json::Object& attempt, const json::Object& request) {
  return Number(attempt, "attempt") >= 1 && json::Find(attempt, "queue_us") != nullptr &&
         Text(attempt, "router") == Text(request, "router") &&
         Number(attempt, "request") == Number(request, "request");
}

std::string AttemptText(const json::Object& attempt) {
  std::string out =
      "  attempt " + Count(attempt, "attempt") + ": queue " + Time(attempt, "queue_us") +
      ", prefill " + Time(attempt, "prefill_us") + ", decode " + Time(attempt, "decode_us") + "; " +
      Count(attempt, "computed_tokens") + " tokens computed, " + Count(attempt, "cached_tokens") +
      " from the cache, " + Count(attempt, "generated_tokens") + " generated";
  if (Number(attempt, "recomputed_tokens") > 0) {
    out += ", " + Count(attempt, "recomputed_tokens") + " computed again";
  }
  if (Number(attempt, "preemptions") > 0) {
    out += ", preemptions: " + Count(attempt, "preemptions");
  }
  return out + "; " + Text(attempt, "reason") + "\n";
}

}  // namespace

absl::StatusOr<std::vector<std::string>> LinesAbout(const std::string& path,
                                                    std::string_view request_id) {
  std::ifstream file(path, std::ios::binary | std::ios::ate);
  const std::streamoff size = file ? static_cast<std::streamoff>(file.tellg()) : -1;
  if (size < 0) {
    return absl::NotFoundError(AbslView("--worker-log: " + path + ": cannot be read"));
  }
  constexpr auto kMost = static_cast<std::streamoff>(kMaxWorkerLogBytes);
  file.seekg(std::max<std::streamoff>(0, size - kMost));
  std::string wanted = "\"request_id\":";
  json::AppendQuoted(request_id, wanted);
  std::vector<std::string> lines;
  std::string line;
  while (lines.size() < kMaxLines && std::getline(file, line)) {
    if (line.size() <= kMaxLineBytes && line.find(wanted) != std::string::npos) {
      lines.push_back(line);
    }
  }
  return lines;
}

std::string WorkerPartText(const std::string& body, const std::vector<std::string>& lines) {
  const absl::StatusOr<json::Value> request = json::Parse(body);
  if (!request.ok() || !request->is_object()) return "";
  std::map<double, std::string> attempts;
  for (const std::string& line : lines) {
    const absl::StatusOr<json::Value> value = json::Parse(line);
    if (!value.ok() || !value->is_object()) continue;
    const json::Object& attempt = value->get_object();
    if (!IsOf(attempt, request->get_object())) continue;
    attempts[Number(attempt, "attempt")] = AttemptText(attempt);
  }
  std::string out;
  for (const auto& [number, text] : attempts) out += text;
  return out.empty() ? out : "\nat its workers\n" + out;
}

}  // namespace quire::cli
