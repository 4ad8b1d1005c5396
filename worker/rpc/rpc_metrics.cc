#include "worker/rpc/rpc_metrics.h"

#include <string>

#include "worker/core/refusal_names.h"

namespace quire {

RpcMetrics::RpcMetrics(Metrics& metrics)
    : frames_received(metrics.AddCounter(
          {"quire_worker_rpc_frames_received_total", "Frames received from routers."})),
      frames_sent(
          metrics.AddCounter({"quire_worker_rpc_frames_sent_total", "Frames sent to routers."})),
      bytes_sent(
          metrics.AddCounter({"quire_worker_rpc_bytes_sent_total", "Bytes of frames sent."})),
      attaches(
          metrics.AddCounter({"quire_worker_attaches_total", "Attaches accepted from routers."})),
      attaches_refused(
          metrics.AddCounter({"quire_worker_attaches_refused_total", "Attaches refused."})),
      attaches_fenced(metrics.AddCounter({"quire_worker_attaches_fenced_total",
                                          "Attaches ended by a newer one of their router."})),
      routers_lost(metrics.AddCounter(
          {"quire_worker_routers_lost_total", "Attaches that ended, for whatever reason."})),
      protocol_errors(metrics.AddCounter(
          {"quire_worker_rpc_protocol_errors_total", "Attaches ended because of a wrong frame."})),
      stale_words(
          metrics.AddCounter({"quire_worker_rpc_stale_words_total",
                              "Words of the engine about attempts of an older Attach; not sent."})),
      unsent_limit_hits(
          metrics.AddCounter({"quire_worker_rpc_unsent_limit_hits_total",
                              "Attaches ended because their router read too slowly."})),
      events_dropped(metrics.AddCounter(
          {"quire_worker_rpc_events_dropped_total", "Times that cache events were dropped."})),
      routers_attached(
          metrics.AddGauge({"quire_worker_routers_attached", "Routers attached now."})) {
  for (size_t code = 0; code < refusals.size(); ++code) {
    refusals[code] = &metrics.AddCounter({"quire_worker_rpc_refusals_total",
                                          "Submits refused, by reason.",
                                          {{"code", std::string(kRefusalNames[code])}}});
  }
}

}  // namespace quire
