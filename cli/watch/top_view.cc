#include "cli/watch/top_view.h"

#include <algorithm>
#include <array>
#include <cstdarg>
#include <cstdio>

#include "cli/format.h"
#include "common/json/json.h"

namespace quire::cli {
namespace {

constexpr size_t kNameWidth = 28;

__attribute__((format(printf, 2, 3))) void Append(std::string& out, const char* format, ...) {
  char line[512];
  va_list arguments;
  va_start(arguments, format);
  std::vsnprintf(line, sizeof(line), format, arguments);
  va_end(arguments);
  out += line;
}

double Rate(const TopInput& input, std::string_view name, std::string_view label = {},
            std::string_view value = {}) {
  const double rate =
      (input.after.Sum(name, label, value) - input.before.Sum(name, label, value)) / input.seconds;
  return std::max(rate, 0.0);  // a counter that was reset
}

std::string Share(double part, double whole) {
  return whole > 0 ? NumberText(100 * part / whole) + " %" : "-";
}

std::string Quantile(const TopInput& input, std::string_view name, double q) {
  const double seconds = QuantileBetween(input.before, input.after, name, q);
  return seconds < 0 ? "-" : MillisText(seconds * 1000);
}

// How wide the tables are.
struct Widths {
  explicit Widths(size_t columns)
      : whole(columns >= kWholeTable),
        name(columns >= kNarrow ? kNameWidth
                                : std::max(kLeastName, columns - std::min(columns, kBesideName))) {}

  static constexpr size_t kWholeTable = 84;
  static constexpr size_t kNarrow = 64;
  static constexpr size_t kBesideName = 36;  // state, batch, queue and cache
  static constexpr size_t kLeastName = 8;
  bool whole;
  size_t name;
};

// As wide as a column of names.
std::string Name(const std::string& name, size_t width) {
  std::string plain = PlainText(name, name.size());
  if (plain.size() > width) return "…" + plain.substr(plain.size() - (width - 1));
  plain.resize(width, ' ');
  return plain;
}

void AppendSummary(const TopInput& input, std::string& out) {
  const MetricsText& now = input.after;
  const char* const part = input.columns < Widths::kNarrow ? "\n             " : ", ";
  Append(out, "requests     %s live, %s queued%s%s/s ended, %s/s refused\n",
         CountText(now.Sum("quire_router_live_requests")).c_str(),
         CountText(now.Sum("quire_router_queued_requests")).c_str(), part,
         NumberText(Rate(input, "quire_router_requests_total")).c_str(),
         NumberText(Rate(input, "quire_router_refused_requests_total")).c_str());
  const double prompt = Rate(input, "quire_router_prompt_tokens_total");
  Append(out, "tokens       %s/s out, %s/s in%sof these %s from caches\n",
         CountText(Rate(input, "quire_router_generation_tokens_total")).c_str(),
         CountText(prompt).c_str(), part,
         Share(Rate(input, "quire_router_cached_tokens_total"), prompt).c_str());
  constexpr std::string_view kFirst = "quire_router_time_to_first_token_seconds";
  constexpr std::string_view kGap = "quire_router_inter_token_gap_seconds";
  Append(out, "first token  p50 %s, p95 %s%sgap p50 %s, p95 %s\n",
         Quantile(input, kFirst, 0.5).c_str(), Quantile(input, kFirst, 0.95).c_str(), part,
         Quantile(input, kGap, 0.5).c_str(), Quantile(input, kGap, 0.95).c_str());
  const double moved = now.Sum("quire_router_carry_ons_total");
  const double deaths = now.Sum("quire_router_worker_deaths_total");
  if (moved > 0 || deaths > 0) {
    Append(out, "failovers    %s streams carried on, %s workers died, since the start\n",
           CountText(moved).c_str(), CountText(deaths).c_str());
  }
}

const WorkerDetail* DetailOf(const TopInput& input, const std::string& worker) {
  for (const WorkerDetail& detail : input.details) {
    if (detail.target == worker) return &detail;
  }
  return nullptr;
}

// State or rate, batch, queue, prefill, cache, streams or steps: the fourth and the last only where
// the table is whole.
void AppendRow(const Widths& widths, const std::string& name,
               const std::array<std::string, 6>& cells, const std::string& more, std::string& out) {
  if (widths.whole) {
    Append(out, "%s  %-10s %6s %6s %9s %8s %8s  %s\n", name.c_str(), cells[0].c_str(),
           cells[1].c_str(), cells[2].c_str(), cells[3].c_str(), cells[4].c_str(), cells[5].c_str(),
           more.c_str());
  } else {
    Append(out, "%s  %-10s %6s %6s %8s\n", name.c_str(), cells[0].c_str(), cells[1].c_str(),
           cells[2].c_str(), cells[4].c_str());
  }
}

void AppendWorkers(const TopInput& input, std::string& out) {
  constexpr std::string_view kReady = "quire_router_worker_ready";
  std::vector<std::string> workers = input.after.LabelValues(kReady, "worker");
  for (const WorkerDetail& detail : input.details) {
    if (!detail.target.empty() &&
        std::find(workers.begin(), workers.end(), detail.target) == workers.end()) {
      workers.push_back(detail.target);
    }
  }
  const Widths widths(input.columns);
  out += '\n';
  AppendRow(widths, Name("WORKER", widths.name),
            {"STATE", "BATCH", "QUEUE", "PREFILL", "KV", "STREAMS"},
            input.details.empty() ? "" : "CACHED", out);
  for (size_t i = 0; i < workers.size() && i < kMaxTopRows; ++i) {
    const std::string& worker = workers[i];
    const auto of = [&](const char* name) { return input.after.Sum(name, "worker", worker); };
    const WorkerDetail* detail = DetailOf(input, worker);
    std::string state = of("quire_router_worker_ready") > 0 ? "ready" : "not ready";
    if (detail != nullptr) state = detail->stuck ? "stuck" : PlainText(detail->phase, 10);
    std::string cached;
    if (detail != nullptr) {
      cached = Share(detail->cached_blocks, detail->total_blocks) + " " +
               PlainText(detail->index_state, 8);
    }
    AppendRow(widths, Name(worker, widths.name),
              {state, CountText(of("quire_router_worker_running_rows")),
               CountText(of("quire_router_worker_waiting_requests")),
               CountText(of("quire_router_worker_prefill_tokens")),
               NumberText(100 * of("quire_router_worker_kv_held_ratio")) + " %",
               CountText(of("quire_router_worker_attempts"))},
              cached, out);
  }
  if (workers.empty()) out += "none yet\n";
  if (workers.size() > kMaxTopRows) {
    Append(out, "and %zu more\n", workers.size() - kMaxTopRows);
  }
}

// Only a server that merges its workers' metrics has these.
void AppendEngines(const TopInput& input, std::string& out) {
  constexpr std::string_view kTokens = "quire_worker_generated_tokens_total";
  const std::vector<std::string> engines = input.after.LabelValues(kTokens, "engine");
  if (engines.empty()) return;
  const Widths widths(input.columns);
  out += '\n';
  AppendRow(widths, Name("ENGINE", widths.name),
            {"TOKENS/S", "BATCH", "QUEUE", "PREFILL/S", "KV", "STEPS/S"}, "", out);
  for (size_t i = 0; i < engines.size() && i < kMaxTopRows; ++i) {
    const std::string& engine = engines[i];
    const auto of = [&](const char* name) { return input.after.Sum(name, "engine", engine); };
    const auto rate = [&](std::string_view name) {
      return CountText(Rate(input, name, "engine", engine));
    };
    const double held = of("quire_worker_pages_held");
    const double pages = held + of("quire_worker_pages_free") + of("quire_worker_pages_evictable");
    AppendRow(
        widths, Name(engine, widths.name),
        {rate(kTokens), CountText(of("quire_worker_running_rows")),
         CountText(of("quire_worker_waiting_requests")), rate("quire_worker_computed_tokens_total"),
         Share(held, pages), rate("quire_worker_steps_total")},
        "", out);
  }
}

void AppendQueues(const TopInput& input, std::string& out) {
  constexpr std::string_view kQueued = "quire_router_queued_requests";
  for (const std::string& model : input.after.LabelValues(kQueued, "model")) {
    const double queued = input.after.Sum(kQueued, "model", model);
    if (queued > 0) {
      Append(out, "queue of %s: %s\n", PlainText(model, 64).c_str(), CountText(queued).c_str());
    }
  }
}

}  // namespace

absl::StatusOr<std::vector<WorkerDetail>> ParseWorkerDetails(const std::string& body) {
  QUIRE_ASSIGN_OR_RETURN(const json::Value value, json::Parse(body));
  const json::Object* object = value.if_object();
  const json::Value* list = object == nullptr ? nullptr : json::Find(*object, "workers");
  const json::Array* workers = list == nullptr ? nullptr : list->if_array();
  if (workers == nullptr) return InvalidArgument("the admin port lists no workers");
  std::vector<WorkerDetail> details;
  for (const json::Value& entry : *workers) {
    const json::Object* worker = entry.if_object();
    if (worker == nullptr) continue;
    const auto text = [worker](std::string_view name) {
      const json::Value* found = json::Find(*worker, name);
      const json::String* string = found == nullptr ? nullptr : found->if_string();
      return string == nullptr ? std::string() : std::string(json::View(*string));
    };
    const auto number = [worker](std::string_view name) {
      const json::Value* found = json::Find(*worker, name);
      return found == nullptr ? 0 : json::AsDouble(*found, name).value_or(0);
    };
    const json::Value* stuck = json::Find(*worker, "stuck");
    WorkerDetail detail{text("target"),
                        text("phase"),
                        text("index_state"),
                        text("problem"),
                        number("live_attempts"),
                        number("running"),
                        number("waiting"),
                        number("free_blocks"),
                        number("total_blocks"),
                        number("cached_blocks"),
                        stuck != nullptr && stuck->is_bool() && stuck->get_bool()};
    details.push_back(std::move(detail));
  }
  return details;
}

std::string TopText(const TopInput& input) {
  std::string out = PlainText(input.url, 80) + ", the last " + NumberText(input.seconds) + " s\n";
  AppendSummary(input, out);
  AppendQueues(input, out);
  AppendWorkers(input, out);
  AppendEngines(input, out);
  return out;
}

}  // namespace quire::cli
