#include "router/admin/admin_routes.h"

#include "common/json/json.h"
#include "router/core/result.h"
#include "router/http/errors.h"

namespace quire {
namespace {

using CallPtr = std::unique_ptr<Call>;

constexpr std::string_view kLevels[] = {"debug", "info", "warning", "error", "off"};
constexpr std::string_view kRequests = "/admin/requests/";

void ReplyJson(Exchange& exchange, const json::Object& object) {
  HttpResponse response;
  response.headers.emplace_back("Cache-Control", "no-store");
  response.body = json::Serialize(object);
  exchange.Reply(std::move(response));
}

json::Object ObjectOf(const WorkerStatus& worker) {
  json::Object object;
  object["target"] = worker.target;
  object["worker_id"] = worker.worker_id;
  object["epoch"] = worker.epoch;
  object["model_id"] = worker.model_id;
  json::Array names;
  for (const std::string& name : worker.served_names) names.emplace_back(name);
  object["served_names"] = std::move(names);
  json::Array adapters;
  for (const std::string& name : worker.adapters) adapters.emplace_back(name);
  object["adapters"] = std::move(adapters);
  object["phase"] = worker.phase;
  object["index_state"] = worker.index_state;
  object["cached_blocks"] = worker.cached_blocks;
  object["index_event_seq"] = worker.index_event_seq;
  object["problem"] = worker.problem;
  object["stuck"] = worker.stuck;
  object["live_attempts"] = worker.live_attempts;
  object["unadmitted_submits"] = worker.unadmitted_submits;
  object["routers_attached"] = worker.routers_attached;
  object["running"] = worker.running;
  object["waiting"] = worker.waiting;
  object["free_blocks"] = worker.free_blocks;
  object["total_blocks"] = worker.total_blocks;
  return object;
}

CallPtr Workers(HttpServices& services, HttpRequest, Exchange& exchange) {
  json::Array workers;
  for (const WorkerStatus& worker : services.pipeline.Workers()) {
    workers.emplace_back(ObjectOf(worker));
  }
  json::Object object;
  object["workers"] = std::move(workers);
  object["live_requests"] = services.pipeline.LiveRequests();
  object["draining"] = services.admin->draining();
  ReplyJson(exchange, object);
  return nullptr;
}

void ReplyLevel(HttpServices& services, Exchange& exchange) {
  json::Object object;
  object["level"] = std::string(LogLevelName(services.log.level()));
  ReplyJson(exchange, object);
}

CallPtr GetLevel(HttpServices& services, HttpRequest, Exchange& exchange) {
  ReplyLevel(services, exchange);
  return nullptr;
}

CallPtr PutLevel(HttpServices& services, HttpRequest request, Exchange& exchange) {
  constexpr size_t kMaxBytes = 1024;
  const auto body = json::Parse(request.body, {.max_bytes = kMaxBytes, .max_depth = 2});
  const json::Object* object = body.ok() ? body->if_object() : nullptr;
  const json::Value* level = object == nullptr ? nullptr : json::Find(*object, "level");
  const json::String* name = level == nullptr ? nullptr : level->if_string();
  for (const std::string_view known : kLevels) {
    if (name == nullptr || json::View(*name) != known) continue;
    services.log.SetLevel(LogLevelFromName(known));
    ReplyLevel(services, exchange);
    return nullptr;
  }
  exchange.Reply(ErrorResponse(InvalidField(
      "level", "must be debug, info, warning, error or off, as in {\"level\":\"debug\"}")));
  return nullptr;
}

CallPtr Drain(HttpServices& services, HttpRequest, Exchange& exchange) {
  services.admin->drain();
  json::Object object;
  object["draining"] = true;
  object["live_requests"] = services.pipeline.LiveRequests();
  ReplyJson(exchange, object);
  return nullptr;
}

json::Object ShortOf(const RequestRecord& record) {
  json::Object line;
  line["request_id"] = record.request_id;
  line["tenant"] = record.tenant;
  line["model"] = record.model;
  line["attempts"] = record.attempts_total;
  line["total_us"] = record.total_us;
  return line;
}

// First the running requests, then the ended ones; each list with the youngest first.
std::string RequestList(const Pipeline& pipeline, const RecentRequests& recent) {
  json::Array requests;
  for (const RunningRequest& running : pipeline.Running({})) {
    json::Object line = ShortOf(running.record);
    line["state"] = std::string(running.state);
    requests.emplace_back(std::move(line));
  }
  const auto& entries = recent.entries();
  for (auto entry = entries.rbegin(); entry != entries.rend(); ++entry) {
    json::Object line = ShortOf(entry->record);
    line["state"] = "ended";
    line["end"] = std::string(RequestEndName(entry->record.end));
    line["ended"] = entry->ended_unix_seconds;
    requests.emplace_back(std::move(line));
  }
  json::Object object;
  object["live_requests"] = pipeline.LiveRequests();  // the list may leave some out
  object["requests"] = std::move(requests);
  return json::Serialize(object);
}

CallPtr Requests(HttpServices& services, HttpRequest request, Exchange& exchange) {
  const std::string id =
      request.path.size() > kRequests.size() ? request.path.substr(kRequests.size()) : "";
  exchange.Reply(RequestView(services.pipeline, services.admin->recent, services.executor, id));
  return nullptr;
}

CallPtr Livez(HttpServices&, HttpRequest, Exchange& exchange) {
  ReplyJson(exchange, {{"status", "ok"}});
  return nullptr;
}

constexpr Route kAdminRoutes[] = {
    {Access::kOpen, "GET", "/livez", Livez},
    {Access::kKey, "GET", "/admin/workers", Workers},
    {Access::kKey, "GET", "/admin/log-level", GetLevel},
    {Access::kKey, "PUT", "/admin/log-level", PutLevel},
    {Access::kKey, "POST", "/admin/drain", Drain},
    {Access::kKey, "GET", "/admin/requests", Requests},
    {Access::kKey, "GET", kRequests, Requests},
};
constexpr RouteTable kTable{kAdminRoutes};

}  // namespace

const RouteTable& AdminRoutes() { return kTable; }

HttpResponse RequestView(const Pipeline& pipeline, const RecentRequests& recent,
                         const Executor& executor, const std::string& request_id) {
  HttpResponse response;
  response.headers.emplace_back("Cache-Control", "no-store");
  if (request_id.empty()) {
    response.body = RequestList(pipeline, recent);
    return response;
  }
  const std::vector<RunningRequest> running = pipeline.Running(request_id);
  if (!running.empty()) {
    const int64_t now = executor.clock().UnixSeconds();
    response.body = RequestTimelineJson(running.front().record, running.front().state, now);
    return response;
  }
  if (const RecentRequests::Entry* entry = recent.Find(request_id)) {
    response.body = RequestTimelineJson(entry->record, "ended", entry->ended_unix_seconds);
    return response;
  }
  return ErrorResponse(404,
                       "no request of this id runs, or is among the last " +
                           std::to_string(kMaxRecentRequests) + " that have ended",
                       "not_found");
}

}  // namespace quire
