#include "cli/watch/timeline.h"

#include <algorithm>
#include <cstdio>
#include <vector>

#include "cli/format.h"
#include "cli/watch/shown_fields.h"
#include "common/json/json.h"

namespace quire::cli {
namespace {

constexpr size_t kBarWidth = 50;

std::vector<const json::Object*> Objects(const json::Object& object, std::string_view name) {
  std::vector<const json::Object*> objects;
  const json::Value* value = json::Find(object, name);
  const json::Array* array = value == nullptr ? nullptr : value->if_array();
  for (size_t i = 0; array != nullptr && i < array->size(); ++i) {
    if (const json::Object* member = (*array)[i].if_object()) objects.push_back(member);
  }
  return objects;
}

struct Event {
  double us = 0;
  std::string what;
};

void AddAttempt(const json::Object& attempt, std::vector<Event>& events) {
  const std::string name = "attempt " + Count(attempt, "attempt");
  const bool carried = json::Find(attempt, "carry_on") != nullptr;
  const auto add = [&events](double us, std::string what) {
    if (us >= 0) events.push_back({us, std::move(what)});
  };
  add(Number(attempt, "sent_us"), name + (carried ? " carries on at " : " sent to ") +
                                      Text(attempt, "worker") + " (" + Text(attempt, "target") +
                                      ")");
  add(Number(attempt, "admitted_us"),
      name + " admitted, " + Count(attempt, "cached_tokens") + " tokens from its cache");
  add(Number(attempt, "first_output_us"), name + ", first output");
  add(Number(attempt, "over_us"), name + " over: " + Text(attempt, "end") + ", " +
                                      Count(attempt, "accepted_tokens") + " tokens");
}

std::string EventLines(const std::vector<Event>& events, double total) {
  std::string out;
  for (const Event& event : events) {
    const double share = total > 0 ? std::clamp(event.us / total, 0.0, 1.0) : 0;
    std::string bar(kBarWidth, '-');
    bar[std::min(static_cast<size_t>(share * kBarWidth), kBarWidth - 1)] = '*';
    char start[96];
    std::snprintf(start, sizeof(start), "%10s  %s  ", MillisText(event.us / 1000).c_str(),
                  bar.c_str());
    out += start + event.what + "\n";
  }
  return out;
}

absl::StatusOr<json::Value> ParseObject(const std::string& body) {
  QUIRE_ASSIGN_OR_RETURN(json::Value value, json::Parse(body));
  if (!value.is_object()) return InvalidArgument("the admin port answered with no object");
  return value;
}

}  // namespace

absl::StatusOr<std::string> TimelineText(const std::string& body) {
  QUIRE_ASSIGN_OR_RETURN(const json::Value value, ParseObject(body));
  const json::Object& record = value.get_object();
  if (Text(record, "request_id").empty()) return InvalidArgument("the answer names no request");
  const std::string reason = Text(record, "reason");
  const std::string error = Text(record, "error");
  std::string out = "request   " + Text(record, "request_id") + ", " + Text(record, "state") +
                    (reason.empty() ? "" : ": " + reason) + (error.empty() ? "" : ", " + error) +
                    "\n";
  const std::string trace = Text(record, "trace_id");
  if (!trace.empty()) out += "trace     " + trace + "\n";
  const std::string tenant = Text(record, "tenant");
  out += "model     " + Text(record, "model") + (tenant.empty() ? "" : ", tenant " + tenant) + "\n";
  out += "tokens    " + Count(record, "prompt_tokens") + " in, of these " +
         Count(record, "cached_tokens") + " from a cache; " + Count(record, "delivered_tokens") +
         " out";
  if (Number(record, "discarded_tokens") > 0) {
    out += ", " + Count(record, "discarded_tokens") + " discarded";
  }
  if (json::Find(record, "inexact") != nullptr) out += "; went on under other numerics";
  out += "\n\n";
  std::vector<Event> events = {{0, "arrived"}};
  for (const json::Object* attempt : Objects(record, "attempts")) AddAttempt(*attempt, events);
  const double first = Number(record, "first_token_us");
  if (first >= 0) events.push_back({first, "first token to the client"});
  const double total = Number(record, "total_us");
  if (total >= 0) events.push_back({total, Text(record, "state") == "ended" ? "ended" : "now"});
  std::stable_sort(events.begin(), events.end(),
                   [](const Event& a, const Event& b) { return a.us < b.us; });
  out += EventLines(events, total);
  const double queued = Number(record, "queued_us");
  if (queued >= 0) out += "\nwaited for a worker: " + MillisText(queued / 1000) + "\n";
  const auto shown = static_cast<double>(Objects(record, "attempts").size());
  if (Number(record, "attempts_total") > shown) {
    out += "attempts in all: " + Count(record, "attempts_total") + "\n";
  }
  return out;
}

absl::StatusOr<std::string> RequestListText(const std::string& body) {
  QUIRE_ASSIGN_OR_RETURN(const json::Value value, ParseObject(body));
  std::string out;
  char line[512];
  std::snprintf(line, sizeof(line), "%-40s %-12s %-20s %8s %10s\n", "REQUEST", "STATE", "MODEL",
                "ATTEMPTS", "TIME");
  out += line;
  for (const json::Object* request : Objects(value.get_object(), "requests")) {
    const std::string end = Text(*request, "end");
    std::snprintf(line, sizeof(line), "%-40s %-12s %-20s %8s %10s\n",
                  Text(*request, "request_id").c_str(),
                  (end.empty() ? Text(*request, "state") : end).c_str(),
                  Text(*request, "model").c_str(), Count(*request, "attempts").c_str(),
                  MillisText(std::max(Number(*request, "total_us"), 0.0) / 1000).c_str());
    out += line;
  }
  return out;
}

}  // namespace quire::cli
