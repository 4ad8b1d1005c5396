#include "router/batches/limits.h"

namespace quire::batches {
namespace {

Counter& Refusals(Metrics& metrics, const char* limit) {
  return metrics.AddCounter({.name = "quire_router_batch_refusals_total",
                             .help = "Uploads and batches that were refused at a limit: "
                                     "--max-batch-files, --max-batch-files-bytes, "
                                     "--max-open-batches, --max-batch-lines",
                             .labels = {{"limit", limit}}});
}

Counter& Lines(Metrics& metrics, const char* result) {
  return metrics.AddCounter({.name = "quire_router_batch_lines_total",
                             .help = "Requests of batches that have their line of result",
                             .labels = {{"result", result}}});
}

Counter& Ended(Metrics& metrics, const char* status) {
  return metrics.AddCounter({.name = "quire_router_batches_ended_total",
                             .help = "Batches that ended on this router",
                             .labels = {{"status", status}}});
}

}  // namespace

BatchMetrics::BatchMetrics(Metrics& m)
    : files(m.AddGauge(
          {.name = "quire_router_batch_files", .help = "Files of all tenants in --batches-dir"})),
      file_bytes(m.AddGauge({.name = "quire_router_batch_file_bytes",
                             .help = "Bytes of --batches-dir, results of running batches "
                                     "included"})),
      open(m.AddGauge({.name = "quire_router_batches_open",
                       .help = "Batches in --batches-dir that have not ended"})),
      running(m.AddGauge(
          {.name = "quire_router_batches_running", .help = "Batches that this router runs"})),
      in_flight(m.AddGauge({.name = "quire_router_batch_lines_in_flight",
                            .help = "Requests of batches that are under way"})),
      refused_files(Refusals(m, "files")),
      refused_bytes(Refusals(m, "bytes")),
      refused_open(Refusals(m, "open")),
      refused_lines(Refusals(m, "lines")),
      forgotten(m.AddCounter({.name = "quire_router_batches_forgotten_total",
                              .help = "Ended batches that gave way to newer ones of their tenant; "
                                      "their files stay"})),
      bad_uploads(m.AddCounter({.name = "quire_router_batch_bad_uploads_total",
                                .help = "Uploads that were no multipart/form-data, or past its "
                                        "limits"})),
      disk_errors(m.AddCounter({.name = "quire_router_batch_disk_errors_total",
                                .help = "Reads and writes in --batches-dir that failed; writes of "
                                        "results are repeated"})),
      lines_ok(Lines(m, "ok")),
      lines_failed(Lines(m, "failed")),
      lines_again(m.AddCounter({.name = "quire_router_batch_lines_again_total",
                                .help = "Times that a request of a batch was sent once more: the "
                                        "fleet was busy, or failed"})),
      ended_completed(Ended(m, "completed")),
      ended_failed(Ended(m, "failed")),
      ended_expired(Ended(m, "expired")),
      ended_cancelled(Ended(m, "cancelled")) {}

}  // namespace quire::batches
