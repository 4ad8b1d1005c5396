// Every limit that has a flag: by which metric one sees that it was met, and which test holds it at
// the limit and one above.
#include <gtest/gtest.h>

#include <array>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <map>
#include <regex>
#include <set>
#include <sstream>
#include <string>

#include "common/metrics/memory_metrics.h"
#include "router/batches/limits.h"
#include "router/client_memory.h"
#include "router/config.h"
#include "router/core/edge_metrics.h"
#include "router/core/request_limits.h"
#include "router/loading/loading_pipeline.h"
#include "router/pipeline/router_metrics.h"
#include "router/responses/store.h"

namespace quire {
namespace {

struct Limit {
  const char* flag;
  const char* metric;  // the beginning of its line in /metrics
  const char* test;    // Suite.Name, under tests/router
};

constexpr char kRequests[] = "LimitsTest.AtTheLimitServedAndOneMoreRefusedAndCounted";
constexpr char kRates[] = "Http2Guard.BurstAtTheLimitPassesAndOneMoreDoesNot";

constexpr Limit kLimits[] = {
    {"--max-batch-files-bytes", "quire_router_batch_refusals_total{limit=\"bytes\"} ",
     "StoreTest.BytesAtTheLimitAreKeptAndOneMoreIsRefusedAndCounted"},
    {"--max-batch-files", "quire_router_batch_refusals_total{limit=\"files\"} ",
     "StoreTest.FilesAtTheLimitAreKeptAndOneMoreIsRefusedAndCounted"},
    {"--max-batch-lines", "quire_router_batch_refusals_total{limit=\"lines\"} ",
     "RunnerTest.LinesAtTheLimitRunAndOneMoreFailsTheBatch"},
    {"--max-open-batches", "quire_router_batch_refusals_total{limit=\"open\"} ",
     "StoreTest.OpenBatchesAtTheLimitWaitAndOneMoreIsRefusedAndCounted"},
    {"--max-running-batches", "quire_router_batches_running ",
     "RunnerTest.BatchesAtTheLimitRunAndATenantHasItsShare"},
    {"--max-batch-in-flight", "quire_router_batch_lines_in_flight ",
     "RunnerTest.RequestsAtTheLimitAreUnderWayAndNoMore"},
    {"--max-load-queue", "quire_router_load_queue_refusals_total ",
     "ShortQueue.AtTheLimitRequestsWaitAndOneMoreIsRefusedAndCounted"},
    {"--max-pull-bytes", "quire_router_pulls_too_large_total ",
     "SmallPulls.ThePullGetsItsLimitAndOneThatIsTooLargeIsCounted"},
    {"--max-loaded-models", "quire_router_models_loaded ",
     "OneLoaded.ModelsAtTheLimitStayAndOneMoreTakesAnIdlePlace"},
    {"--max-tls-handshakes", "quire_router_tls_handshakes_evicted_total ",
     "TlsEdge.HandshakesAtTheLimitGoOnAndOneMoreIsClosed"},
    {"--max-connections", "quire_router_connections_refused_total ",
     "FrontTest.ConnectionsAtTheLimitAreServedAndOneMoreIsTold"},
    {"--max-connections-per-address", "quire_router_connections_of_address_refused_total ",
     "FrontTest.AnAddressAtItsShareIsServedAndOneMoreIsTold"},
    {"--max-streams-per-connection", "quire_router_http2_streams_over_limit_total ",
     "GrpcWire.StreamsAtTheLimitPassAndOneMoreIsRefusedAndCounted"},
    {"--max-header-bytes", "quire_router_http_headers_too_large_total ",
     "HttpWire.HeadersAndBodiesAtTheirLimitsAreServedAndOneByteMoreIsCounted"},
    {"--max-header-bytes", "quire_router_http2_guard_closed_total{limit=\"header_block\"} ",
     "Http2Guard.HeaderBlocksAreBounded"},
    {"--max-header-bytes", "quire_router_http_headers_too_large_total ",
     "GrpcWire.HeadersAtTheLimitAreServedAndMoreAreRefusedAndCounted"},
    {"--max-body-bytes", "quire_router_http_bodies_too_large_total ",
     "HttpWire.HeadersAndBodiesAtTheirLimitsAreServedAndOneByteMoreIsCounted"},
    {"--max-total-body-bytes", "quire_router_bodies_refused_total ",
     "HttpWire.BodiesThatWaitAtTheirLimitAreServedAndOneByteMoreIsRefused"},
    {"--max-total-body-bytes", "quire_router_bodies_refused_total ",
     "GrpcWire.MessagesThatWaitAtTheirLimitAreServedAndOneByteMoreIsRefused"},
    {"--max-total-body-bytes", "quire_router_refused_requests_total{cause=\"prompt_bytes\"} ",
     "PipelineRecordsTest.PromptsThatWaitAtTheirLimitAreServedAndOneByteMoreIsRefused"},
    {"--max-client-memory-bytes", "quire_router_client_memory_refusals_total{scope=\"process\"} ",
     "ClientMemory.WhatIsHeldAndWhoseLimitRefusedIsShown"},
    {"--max-client-memory-bytes", "quire_router_refused_requests_total{cause=\"client_memory\"} ",
     "PipelineMemoryTest.AllClientsAtTheLimitAreServedAndOneByteMoreIsRefused"},
    {"--max-tenant-memory-bytes", "quire_router_refused_requests_total{cause=\"tenant_memory\"} ",
     "PipelineMemoryTest.ATenantAtItsLimitIsServedAndOneByteMoreIsRefused"},
    {"--max-request-choices", "quire_router_limit_refusals_total{limit=\"request_choices\"} ",
     kRequests},
    {"--max-tenant-memory-bytes", "quire_router_client_memory_refusals_total{scope=\"tenant\"} ",
     "ClientMemory.FlagsSayItAndAPartIsNeverMoreThanTheWhole"},
    {"--max-tenant-memory-bytes", "quire_router_client_memory_refusals_total{scope=\"tenant\"} ",
     "GrpcWire.OneTenantsMessagesCountOverItsConnectionsAndItsLimitHolds"},
    {"--max-tenant-memory-bytes", "quire_router_client_memory_refusals_total{scope=\"tenant\"} ",
     "TokenizeQuotaTest.TheWorkOfATextAtTheLimitIsDoneAndOneByteMoreIsRefused"},
    {"--max-connection-memory-bytes",
     "quire_router_client_memory_refusals_total{scope=\"connection\"} ",
     "ClientMemory.FlagsSayItAndAPartIsNeverMoreThanTheWhole"},
    {"--max-connection-memory-bytes",
     "quire_router_client_memory_refusals_total{scope=\"connection\"} ",
     "GrpcWire.OneConnectionsMessagesAtItsLimitWaitAndOneByteMoreIsRefused"},
    {"--responses-store", "quire_router_kept_responses_evicted_total ",
     "ResponseStore.AtTheLimitAllAreKeptAndOneByteMoreEvictsTheOldest"},
    {"--max-body-bytes", "quire_router_grpc_messages_too_large_total ",
     "GrpcEdge.MessagesAtTheLimitAreServedAndOneByteMoreIsRefusedAndCounted"},
    {"--header-timeout", "quire_router_first_bytes_timeouts_total ",
     "FrontTest.SilenceIsEndedByTheDeadline"},
    {"--header-timeout", "quire_router_http_request_timeouts_total ",
     "HttpWire.SlowHeadersAndBodiesTimeOut"},
    {"--body-timeout", "quire_router_http_request_timeouts_total ",
     "HttpWire.SlowHeadersAndBodiesTimeOut"},
    {"--body-timeout", "quire_router_grpc_message_timeouts_total ",
     "GrpcMessageTimeout.AMessageWholeAtTheLimitIsServedAndOneTooLateIsRefusedAndCounted"},
    {"--idle-timeout", "quire_router_http_idle_connections_closed_total ",
     "HttpWire.IdleConnectionsAreClosed"},
    {"--idle-timeout", "quire_router_http2_idle_connections_closed_total ",
     "GrpcEdge.ConnectionsWithoutACallAreLeftAndOthersAreNot"},
    {"--slow-client-timeout", "quire_router_http_write_timeouts_total ",
     "HttpStreams.AClientThatTakesNothingIsGivenUp"},
    {"--slow-client-timeout", "quire_router_http_write_timeouts_total ",
     "GrpcWire.AnAnswerThatIsNotTakenIsGivenUpOnceItHasEnded"},
    {"--slow-client-rate", "quire_router_http_write_timeouts_total ",
     "HttpStreams.AReaderAtTheLeastRateGetsEverythingAndASlowerOneIsGivenUp"},
    {"--max-requests-per-call", "quire_router_limit_refusals_total{limit=\"call_requests\"} ",
     "OipEdge.RequestsPastTheCallsLimitAreRefusedInIt"},
    {"--max-prompts", "quire_router_limit_refusals_total{limit=\"prompts\"} ", kRequests},
    {"--max-messages", "quire_router_limit_refusals_total{limit=\"messages\"} ", kRequests},
    {"--max-json-depth", "quire_router_limit_refusals_total{limit=\"json_depth\"} ", kRequests},
    {"--max-json-values", "quire_router_limit_refusals_total{limit=\"json_values\"} ", kRequests},
    {"--max-prompt-bytes", "quire_router_limit_refusals_total{limit=\"prompt_bytes\"} ", kRequests},
    {"--max-choices", "quire_router_limit_refusals_total{limit=\"choices\"} ", kRequests},
    {"--max-stop-strings", "quire_router_limit_refusals_total{limit=\"stop_strings\"} ", kRequests},
    {"--max-logit-bias", "quire_router_limit_refusals_total{limit=\"logit_bias\"} ", kRequests},
    {"--max-tools", "quire_router_limit_refusals_total{limit=\"tools\"} ", kRequests},
    {"--max-response-bytes", "quire_router_responses_cut_total ",
     "PipelineTest.ACollectedAnswerEndsAtTheResponseLimit"},
    {"--max-live-requests", "quire_router_refused_requests_total{cause=\"live_requests\"} ",
     "AdmissionTest.LiveRequestsAreBounded"},
    {"--max-queued-requests", "quire_router_refused_requests_total{cause=\"queue_full\"} ",
     "AdmissionTest.TheQueueIsBounded"},
    {"--max-queued-per-tenant", "quire_router_refused_requests_total{cause=\"tenant_queue_full\"} ",
     "AdmissionTest.TheQueueOfATenantIsBounded"},
    {"--max-journal-bytes", "quire_router_refused_requests_total{cause=\"journal_full\"} ",
     "AdmissionTest.JournalBytesShedNewRequestsAndNeverRunningOnes"},
    {"--max-prefill-ahead", "quire_router_prefill_ahead_waits_total ",
     "PipelineAdmissionTest.PrefillAheadAtTheLimitPassesAndOneTokenMoreWaitsAndIsCounted"},
    {"--window-tokens", "quire_router_full_windows_total ",
     "PipelineTest.AStreamingClientThatTakesNothingStopsTheWorkerAtTheWindow"},
    {"--max-index-bytes", "quire_router_cache_index_over_limit_total ",
     "CacheIndexTest.AWorkerPastTheMemoryLimitCountsAsEmptyAndOthersGoOn"},
    {"--max-snapshots", "quire_router_cache_index_snapshots_delayed_total ",
     "CacheIndexTest.AsksFewAtATimeAndLaterAfterEachFailure"},
    {"--max-carry-on-tokens", "quire_router_paced_carry_ons_total ",
     "CarryOnPacer.KeepsToTheLimitPerWorker"},
    {"--placement-retry-percent", "quire_router_placement_retries_denied_total ",
     "RetryBudget.GivesAShareOfTheRequestsAndABurst"},
    {"--max-worker-deaths", "quire_router_suspect_requests_total ",
     "PoisonTest.ARequestThatKillsEveryWorkerIsGivenUpAfterThree"},
    {"--max-suspect-prompts", "quire_router_suspect_prompts_forgotten_total ",
     "DeathLedger.KeepsToItsLimit"},
    {"--http2-new-streams", "quire_router_http2_guard_closed_total{limit=\"new_streams\"} ",
     kRates},
    {"--http2-resets", "quire_router_http2_guard_closed_total{limit=\"resets\"} ", kRates},
    {"--http2-pings", "quire_router_http2_guard_closed_total{limit=\"pings\"} ", kRates},
    {"--http2-settings", "quire_router_http2_guard_closed_total{limit=\"settings\"} ", kRates},
    {"--http2-window-updates", "quire_router_http2_guard_closed_total{limit=\"window_updates\"} ",
     kRates},
    {"--http2-continuations", "quire_router_http2_guard_closed_total{limit=\"continuations\"} ",
     "Http2Guard.HeaderBlocksAreBounded"},
    {"--http2-empty-data", "quire_router_http2_guard_closed_total{limit=\"empty_data\"} ", kRates},
    {"--http2-other-frames", "quire_router_http2_guard_closed_total{limit=\"other_frames\"} ",
     kRates},
    {"--http2-header-bytes", "quire_router_http2_guard_closed_total{limit=\"header_bytes\"} ",
     "Http2Guard.HeaderBlocksAreBounded"},
    {"--http2-decoded-header-bytes",
     "quire_router_http2_guard_closed_total{limit=\"decoded_header_bytes\"} ",
     "Http2Guard.WhatHeadersStandForIsBoundedByBlockAndByRate"},
    {"--max-connection-age", "quire_router_http2_connections_aged_total ",
     "ConnectionAge.AnOldConnectionIsLeftAndItsCallsGoOnForTheGrace"},
    {"--max-connection-age-grace", "quire_router_http2_connections_aged_total ",
     "ConnectionAge.AnOldConnectionIsLeftAndItsCallsGoOnForTheGrace"},
    {"--max-connection-memory-bytes",
     "quire_router_client_memory_refusals_total{scope=\"connection\"} ",
     "HeldMemory.AConnectionsMemoryAtItsLimitIsServedAndOneCallMoreIsRefusedAndCounted"},
    {"--max-connection-memory-bytes",
     "quire_router_client_memory_refusals_total{scope=\"connection\"} ",
     "HeldMemory.AnAnswerThatWaitsAtTheLimitIsKeptAndOneByteMoreEndsTheCall"},
};

std::set<std::string> FlagsOfLimits() {
  RouterConfig config;
  const std::string help = MakeRouterSchema(config).HelpText();
  const std::regex limit(
      "--((max-|http2-|window-tokens|placement-retry-percent)[a-z0-9-]*|"
      "(header|body|idle|slow-client)-timeout|slow-client-rate|responses-store)");
  std::set<std::string> flags;
  // A flag's own line begins with it; its help may name others.
  std::istringstream lines(help);
  for (std::string line; std::getline(lines, line);) {
    std::smatch found;
    const size_t begin = line.find_first_not_of(' ');
    if (begin == std::string::npos) continue;
    line.erase(0, begin);
    if (std::regex_search(line, found, limit, std::regex_constants::match_continuous)) {
      flags.insert(found.str());
    }
  }
  return flags;
}

// Each test in the sources, with the binary that their folder makes.
std::map<std::string, std::string> TestsOfTheRouter() {
  const std::regex test("TEST(?:_F)?\\((\\w+), (\\w+)\\)");
  std::map<std::string, std::string> tests;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(
           std::filesystem::path(QUIRE_SOURCE_DIR) / "tests/router")) {
    if (entry.path().extension() != ".cc") continue;
    std::ifstream file(entry.path());
    const std::string folder = entry.path().parent_path().filename();
    for (std::string line; std::getline(file, line);) {
      std::smatch found;
      if (std::regex_search(line, found, test)) {
        tests[found[1].str() + "." + found[2].str()] = "test_router_" + folder;
      }
    }
  }
  return tests;
}

// What a binary itself says that it runs.
std::set<std::string> TestsIn(const std::filesystem::path& binary) {
  std::set<std::string> tests;
  FILE* listing = popen((binary.string() + " --gtest_list_tests").c_str(), "r");
  if (listing == nullptr) return tests;
  std::string text;
  std::array<char, 4096> part;
  while (const size_t count = fread(part.data(), 1, part.size(), listing)) {
    text.append(part.data(), count);
  }
  if (pclose(listing) != 0) return tests;
  std::istringstream lines(text);
  std::string suite;
  for (std::string line; std::getline(lines, line);) {
    if (line.rfind("  ", 0) != 0) {
      suite = line;  // with its full stop
    } else if (line.rfind("  DISABLED_", 0) != 0) {
      tests.insert(suite + line.substr(2));
    }
  }
  return tests;
}

TEST(LimitsCensus, EveryFlagOfALimitHasAMetricAndATest) {
  std::set<std::string> listed;
  for (const Limit& limit : kLimits) listed.insert(limit.flag);
  EXPECT_EQ(FlagsOfLimits(), listed) << "a new limit needs its line here";
}

TEST(LimitsCensus, TheMetricsAreTold) {
  Metrics metrics;
  const EdgeMetrics edge(metrics);
  const LimitCounters requests(metrics);
  const RouterMetrics router(metrics, "prefix-aware", false);
  const LoadingMetrics loading(metrics);
  const batches::BatchMetrics batch_metrics(metrics);
  const responses::Store kept(1, std::make_shared<MemoryAccount>(1), metrics);
  AddMemoryMetrics(std::make_shared<MemoryAccount>(1),
                   {"quire_router_client_memory_", "clients", "the router"}, metrics);
  const std::string told = "\n" + metrics.Render();
  for (const Limit& limit : kLimits) {
    EXPECT_NE(told.find("\n" + std::string(limit.metric)), std::string::npos) << limit.metric;
  }
}

// A test that is written and not compiled, or disabled, holds nothing.
TEST(LimitsCensus, TheTestsAreRun) {
  const std::map<std::string, std::string> written = TestsOfTheRouter();
  std::map<std::string, std::set<std::string>> run;  // by binary
  std::set<std::string> not_built;
  for (const Limit& limit : kLimits) {
    const auto test = written.find(limit.test);
    ASSERT_NE(test, written.end()) << limit.flag << ": " << limit.test;
    const std::filesystem::path binary =
        std::filesystem::path(QUIRE_BINARY_DIR) / "tests" / test->second;
    if (!std::filesystem::exists(binary)) {
      not_built.insert(test->second);
      continue;
    }
    if (!run.contains(test->second)) run[test->second] = TestsIn(binary);
    EXPECT_TRUE(run[test->second].contains(limit.test))
        << limit.flag << ": " << limit.test << " is not in " << binary;
  }
  if (!not_built.empty()) {
    GTEST_SKIP() << "not built: " << *not_built.begin() << " and " << not_built.size() - 1
                 << " other binaries; `./dev build` builds them";
  }
}

}  // namespace
}  // namespace quire
