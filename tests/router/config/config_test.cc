#include "router/config.h"

#include <gtest/gtest.h>

#include "common/config/describe.h"
#include "router/process_options.h"

namespace quire {
namespace {

struct Outcome {
  RouterConfig config;
  absl::Status status;
};

Outcome Read(std::vector<std::string> args) {
  Outcome outcome;
  config::Schema schema = MakeRouterSchema(outcome.config);
  const auto parsed = schema.Parse(args, {});
  outcome.status = parsed.ok() ? CheckRouterConfig(outcome.config) : parsed.status();
  return outcome;
}

TEST(RouterConfig, DefaultsNeedOnlyAWorker) {
  const Outcome outcome = Read({"--worker=127.0.0.1:9000", "--worker", "[::1]:9001"});
  ASSERT_TRUE(outcome.status.ok()) << StatusMessage(outcome.status);
  EXPECT_EQ(outcome.config.pipeline.workers.size(), 2u);
  EXPECT_EQ(outcome.config.front.host, "127.0.0.1");
  EXPECT_EQ(outcome.config.port, 8000);
  EXPECT_EQ(outcome.config.grpc_port, 8001);
}

TEST(RouterConfig, EveryRateOfHttp2IsAFlagWithTheGuardsOwnDefault) {
  const GuardLimits own;
  const GuardLimits defaults = Read({"--worker=h:1"}).config.grpc.guard;
  EXPECT_EQ(defaults.max_header_block_bytes, own.max_header_block_bytes);
  EXPECT_EQ(defaults.max_control_frame_bytes, own.max_control_frame_bytes);
  const std::pair<const char*, RateLimit GuardLimits::*> flags[] = {
      {"--http2-new-streams", &GuardLimits::new_streams},
      {"--http2-resets", &GuardLimits::resets},
      {"--http2-pings", &GuardLimits::pings},
      {"--http2-settings", &GuardLimits::settings},
      {"--http2-window-updates", &GuardLimits::window_updates},
      {"--http2-continuations", &GuardLimits::continuations},
      {"--http2-empty-data", &GuardLimits::empty_data},
      {"--http2-other-frames", &GuardLimits::other_frames},
      {"--http2-header-bytes", &GuardLimits::header_bytes}};
  for (const auto& [flag, limit] : flags) {
    EXPECT_EQ((defaults.*limit).per_second, (own.*limit).per_second) << flag;
    EXPECT_EQ((defaults.*limit).burst, (own.*limit).burst) << flag;
    const Outcome given = Read({"--worker=h:1", std::string(flag) + "=7"});
    ASSERT_TRUE(given.status.ok()) << StatusMessage(given.status);
    EXPECT_EQ((given.config.grpc.guard.*limit).per_second, 7) << flag;
    EXPECT_FALSE(Read({"--worker=h:1", std::string(flag) + "=0"}).status.ok()) << flag;
  }
}

// Each of these fields has no other writer than its flag.
TEST(RouterConfig, FlagsAreWrittenIntoWhatTheRoomsUse) {
  const RouterConfig usual = Read({"--worker=h:1"}).config;
  EXPECT_EQ(usual.grpc.max_receive_bytes, usual.http.max_body_bytes);
  EXPECT_EQ(usual.grpc.max_metadata_bytes, usual.http.max_header_bytes);
  EXPECT_EQ(usual.front.first_bytes_timeout, usual.http.header_timeout);
  EXPECT_EQ(usual.pipeline.policy, &Policies().front());
  const Outcome given = Read({"--worker=h:1",
                              "--max-prefill-ahead=7",
                              "--max-body-bytes=2KiB",
                              "--max-header-bytes=3KiB",
                              "--header-timeout=2s",
                              "--body-timeout=3s",
                              "--idle-timeout=4s",
                              "--slow-client-timeout=5s",
                              "--stream-keep-alive=6s",
                              "--max-prompt-bytes=9",
                              "--max-total-body-bytes=3KiB",
                              "--routing-policy=random",
                              "--carry-on=exact",
                              "--generation-config=vllm",
                              "--worker-silence-ms=300",
                              "--empty-pool-wait=7s",
                              "--window-tokens=8",
                              "--http2-resets=50",
                              "--max-stop-strings=5",
                              "--worker-k8s=app=quire"});
  ASSERT_TRUE(given.status.ok()) << StatusMessage(given.status);
  const RouterConfig& c = given.config;
  EXPECT_EQ(c.pipeline.limits.max_prefill_ahead, 7u);
  EXPECT_EQ(c.http.max_body_bytes, 2048u);
  EXPECT_EQ(c.grpc.max_receive_bytes, 2048u);
  EXPECT_EQ(c.http.max_header_bytes, 3072u);
  EXPECT_EQ(c.grpc.max_metadata_bytes, 3072u);
  EXPECT_EQ(c.grpc.guard.max_header_block_bytes, 3072u);
  EXPECT_EQ(c.grpc.guard.max_control_frame_bytes, 3072u);
  EXPECT_EQ(c.http.header_timeout, 2 * kMicrosPerSecond);
  EXPECT_EQ(c.front.first_bytes_timeout, 2 * kMicrosPerSecond);
  EXPECT_EQ(c.front.tls_handshake_timeout, 2 * kMicrosPerSecond);
  EXPECT_EQ(c.http.body_timeout, 3 * kMicrosPerSecond);
  EXPECT_EQ(c.grpc.message_timeout, 3 * kMicrosPerSecond);
  EXPECT_EQ(c.http.idle_timeout, 4 * kMicrosPerSecond);
  EXPECT_EQ(c.grpc.idle_timeout, 4 * kMicrosPerSecond);
  EXPECT_EQ(c.http.write_timeout, 5 * kMicrosPerSecond);
  EXPECT_EQ(c.grpc.write_timeout, 5 * kMicrosPerSecond);
  EXPECT_EQ(c.http.sse_keep_alive, 6 * kMicrosPerSecond);
  EXPECT_EQ(c.grpc.keep_alive, 6 * kMicrosPerSecond);
  EXPECT_EQ(c.requests.max_prompt_bytes, 9u);
  EXPECT_EQ(c.pipeline.limits.max_prompt_bytes, 9u);
  EXPECT_EQ(c.requests.max_stop_strings, 5u);
  EXPECT_EQ(c.pipeline.limits.max_stop_strings, 5u);
  EXPECT_EQ(c.kubernetes.selector, "app=quire");
  EXPECT_EQ(c.http.max_total_body_bytes, 3072u);
  EXPECT_EQ(c.pipeline.max_waiting_prompt_bytes, 3072u);
  EXPECT_EQ(c.pipeline.policy->name, "random");
  EXPECT_EQ(c.pipeline.carry_on_mode, CarryOnMode::kExact);
  EXPECT_FALSE(c.pipeline.generation_defaults);
  EXPECT_EQ(c.pipeline.link.silence_ms, 300u);
  EXPECT_EQ(c.pipeline.limits.empty_pool_wait_ms, 7000u);
  EXPECT_EQ(GrpcEdgeLimitsOf(c).taken_step, TakenStepOf(8));
  EXPECT_EQ(c.grpc.guard.resets.burst, 200) << "as many seconds' worth as by default";
}

TEST(RouterConfig, ErrorsNameTheFlagAndAValueThatWorks) {
  const std::vector<std::pair<std::vector<std::string>, std::string>> cases = {
      {{}, "--worker"},
      {{"--worker=nonsense"}, "--worker"},
      {{"--worker=host:"}, "--worker"},
      {{"--worker=host:0"}, "--worker"},
      {{"--worker=host:70000"}, "--worker"},
      {{"--worker=:9000"}, "--worker"},
      {{"--worker=a:b:9000"}, "--worker"},
      {{"--worker=h:1", "--port=70000"}, "--port"},
      {{"--worker=h:1", "--port=5", "--grpc-port=5"}, "--grpc-port"},
      {{"--worker=h:1", "--host=0.0.0.0"}, "--insecure"},
      {{"--worker=h:1", "--host=0.0.0.0"}, "--api-key-file"},
      {{"--worker=h:1", "--api-key-file=keys.json"}, "--salt-key-file"},
      {{"--worker=h:1", "--tls-cert-file=c"}, "--tls-key-file is missing"},
      {{"--worker=h:1", "--ssl-keyfile=k"}, "--tls-cert-file is missing"},
      {{"--worker=h:1", "--admin-port=9"}, "--admin-token-file is missing"},
      {{"--worker=h:1", "--admin-token-file=f"}, "--admin-port is missing"},
      {{"--worker=h:1", "--admin-token-file=f", "--admin-port=8001"}, "--admin-port"},
      {{"--worker=h:1", "--worker-tls-ca-file=c"}, "--worker-tls-cert-file"},
      {{"--worker=h:1", "--worker-tls-name="}, "--worker-tls-name"},
      {{"--worker=h:1", "--check-ports"}, "--check-ports"},
      {{"--worker=h:1", "--trusted-proxies=10.0.0.0/33"}, "--trusted-proxies: \"10.0.0.0/33\""},
      {{"--worker=h:1", "--metrics-port=8001"}, "--metrics-port: is the same as another port"},
      {{"--worker=h:1", "--metrics-port=9", "--no-metrics"}, "--metrics-port: --no-metrics"},
      {{"--worker=h:1", "--max-tls-handshakes=0"}, "--max-tls-handshakes"},
      {{"--worker=h:1", "--host=example.org"}, "--host"},
      {{"--worker=h:1", "--routing-policy=magic"}, "--routing-policy"},
      {{"--worker=h:1", "--max-body-bytes=1"}, "--max-body-bytes"},
      {{"--worker=h:1", "--max-queued-requests=0"}, "--max-queued-requests"},
      {{"--worker=h:1", "--max-queued-per-tenant=-1"}, "--max-queued-per-tenant"},
      {{"--worker=h:1", "--max-prefill-ahead=0"}, "--max-prefill-ahead"},
      {{"--worker=h:1", "--max-journal-bytes=1"}, "--max-journal-bytes"},
      {{"--worker=h:1", "--model-alias=nothing"}, "--model-alias"},
      {{"--worker=h:1", "--model-weights=a=b"}, "--model-weights"},
      {{"--worker=h:1", "--pin-model=a="}, "--pin-model"},
      {{"--worker=h:1", "--pot=1"}, "--port"},
      {{"--worker=h:1", "--carry-on=never"}, "--carry-on"},
      {{"--worker=h:1", "--max-carry-on-tokens=0"}, "--max-carry-on-tokens"},
      {{"--worker=h:1", "--placement-retry-percent=101"}, "--placement-retry-percent"},
      {{"--worker=h:1", "--max-worker-deaths=0"}, "--max-worker-deaths"},
      {{"--worker=h:1", "--empty-pool-wait=2d"}, "--empty-pool-wait"},
  };
  for (const auto& [args, mention] : cases) {
    const Outcome outcome = Read(args);
    ASSERT_FALSE(outcome.status.ok()) << mention;
    const std::string message = StatusMessage(outcome.status);
    EXPECT_NE(message.find(mention), std::string::npos) << message;
    EXPECT_EQ(message.find('\n'), std::string::npos) << message;
  }
}

TEST(RouterConfig, ACollectorsPasswordIsNotShownAgain) {
  RouterConfig config;
  config::Schema schema = MakeRouterSchema(config);
  const auto parsed = schema.Parse(
      {"--show-config", "--otlp-traces-endpoint=http://me:hunter2@collector:4318"}, {});
  ASSERT_TRUE(parsed.ok()) << parsed.status();
  const std::string shown = config::AnswerText(schema, *parsed).value_or("");
  EXPECT_NE(shown.find("otlp-traces-endpoint"), std::string::npos) << shown;
  EXPECT_EQ(shown.find("hunter2"), std::string::npos) << shown;
}

TEST(RouterConfig, KeysOpenTheWayOffLoopback) {
  EXPECT_TRUE(Read({"--worker=h:1", "--host=0.0.0.0", "--api-key=secret-key"}).status.ok());
  EXPECT_TRUE(Read({"--worker=h:1", "--host=0.0.0.0", "--api-key-file=k", "--salt-key-file=s"})
                  .status.ok());
}

TEST(RouterConfig, OffLoopbackWithInsecure) {
  EXPECT_TRUE(Read({"--worker=h:1", "--host=0.0.0.0", "--insecure"}).status.ok());
  EXPECT_TRUE(Read({"--worker=h:1", "--host=::1"}).status.ok());
  EXPECT_TRUE(Read({"--worker=h:1", "--port=0", "--grpc-port=0"}).status.ok());
}

}  // namespace
}  // namespace quire
