#include "router/http/fleet_view.h"

#include "common/json/json.h"
#include "common/utf8.h"

namespace quire {
namespace {

constexpr size_t kMaxNameBytes = 128;  // of what workers and clients chose

std::string Cut(const std::string& name) { return ValidUtf8(name.substr(0, kMaxNameBytes)); }

json::Object WorkerOf(const WorkerStatus& worker) {
  json::Object object;
  object["id"] = Cut(worker.worker_id.empty() ? worker.target : worker.worker_id);
  object["target"] = Cut(worker.target);
  object["phase"] = worker.stuck ? "stuck" : worker.phase;
  json::Array models;
  for (const std::string& name : worker.served_names) models.emplace_back(Cut(name));
  object["models"] = std::move(models);
  object["problem"] = Cut(worker.problem);
  object["index"] = worker.index_state;
  object["cached_blocks"] = worker.cached_blocks;
  object["free_blocks"] = worker.free_blocks;
  object["total_blocks"] = worker.total_blocks;
  object["running"] = worker.running;
  object["waiting"] = worker.waiting;
  return object;
}

json::Object StreamOf(const RunningRequest& running) {
  const RequestRecord& record = running.record;
  json::Object object;
  // Unique while it runs; the client's own id may not be.
  object["number"] = record.request.value();
  object["id"] = Cut(record.request_id);
  object["model"] = Cut(record.model);
  object["state"] = std::string(running.state);
  object["attempts"] = record.attempts_total;
  object["tokens"] = record.accepted_tokens;
  uint32_t moved = 0;
  for (const AttemptReport& attempt : record.attempts) moved += attempt.carry_on ? 1 : 0;
  object["moved"] = moved;
  if (!record.attempts.empty() && record.attempts.back().end == AttemptEnd::kRunning) {
    const AttemptReport& last = record.attempts.back();
    object["worker"] = Cut(last.worker_id.empty() ? last.target : last.worker_id);
  }
  return object;
}

json::Object ModelOf(const MachineModel& model) {
  json::Object object;
  object["name"] = Cut(model.name);
  object["state"] = std::string(serve::ModelStateName(model.state));
  object["file_bytes"] = model.file_bytes;
  object["memory_bytes"] = model.memory_bytes;
  object["requests"] = model.requests;
  if (model.until) object["until"] = *model.until;
  return object;
}

}  // namespace

std::string FleetJson(const FleetPicture& view) {
  json::Array workers;
  for (const WorkerStatus& worker : view.workers) workers.emplace_back(WorkerOf(worker));
  json::Array streams;
  for (const RunningRequest& running : view.running) {
    if (streams.size() == kMaxFleetStreams) break;
    streams.emplace_back(StreamOf(running));
  }
  json::Object object;
  object["live_requests"] = view.live_requests;
  object["workers"] = std::move(workers);
  object["streams"] = std::move(streams);
  json::Array models;
  for (const MachineModel& model : view.models) models.emplace_back(ModelOf(model));
  if (!models.empty()) object["models"] = std::move(models);
  return json::Serialize(object);
}

}  // namespace quire
