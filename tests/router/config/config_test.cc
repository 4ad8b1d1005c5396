#include "router/config.h"

#include <gtest/gtest.h>

#include "common/config/describe.h"
#include "router/http2_flags.h"

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
  EXPECT_EQ(outcome.config.workers.size(), 2u);
  EXPECT_EQ(outcome.config.host, "127.0.0.1");
  EXPECT_EQ(outcome.config.port, 8000);
  EXPECT_EQ(outcome.config.grpc_port, 8001);
}

TEST(RouterConfig, EveryRateOfHttp2IsAFlagWithTheGuardsOwnDefault) {
  const GuardLimits own;
  const GuardLimits defaults = GuardLimitsOf(Read({"--worker=h:1"}).config);
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
    EXPECT_EQ((GuardLimitsOf(given.config).*limit).per_second, 7) << flag;
    EXPECT_FALSE(Read({"--worker=h:1", std::string(flag) + "=0"}).status.ok()) << flag;
  }
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

TEST(RouterConfig, HostAndPort) {
  EXPECT_EQ(HostAndPort("127.0.0.1", 80), "127.0.0.1:80");
  EXPECT_EQ(HostAndPort("::1", 80), "[::1]:80");
}

}  // namespace
}  // namespace quire
