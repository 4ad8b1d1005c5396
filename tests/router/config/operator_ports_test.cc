// How many connections the ports for operators and of metrics take.
#include <gtest/gtest.h>

#include <memory>
#include <optional>
#include <vector>

#include "router/admin/admin_routes.h"
#include "router/front/front.h"
#include "router/process_options.h"
#include "tests/router/support/edge_harness.h"

namespace quire {
namespace {

// `limit` connections are all served, and keep their places; for one more the oldest gives way.
void ExpectPlaces(const FrontOptions& options, const RouteTable& routes, size_t limit) {
  EdgeHarness edge;
  edge.services.routes = &routes;
  std::optional<Front> front;
  uint16_t port = 0;
  edge.OnLoop([&] {
    front.emplace(edge.executor.context(), edge.services, options,
                  [](EdgeStream, const std::string&, const std::function<void()>&,
                     const std::shared_ptr<ClientSeat>&) {});
    const absl::Status listens = front->Listen();
    EXPECT_TRUE(listens.ok()) << listens;
    port = front->ports()[0];
  });
  const auto is_served = [&](RawClient& client) {
    client.Send(edge.Get("/livez"));
    return client.ReadResponse().status == 200;
  };
  std::vector<RawClient> clients;
  for (size_t i = 0; i < limit; ++i) {
    clients.push_back(RawClient::Connect(port));
    EXPECT_TRUE(is_served(clients.back()));
  }
  for (RawClient& client : clients) EXPECT_TRUE(is_served(client));
  EXPECT_EQ(edge.counters.connections_gave_way.value(), 0u);
  clients.push_back(RawClient::Connect(port));
  EXPECT_TRUE(is_served(clients.back()));
  EXPECT_EQ(clients.front().ReadToEnd(), "");
  EXPECT_EQ(edge.counters.connections_gave_way.value(), 1u);
  edge.OnLoop([&] { front.reset(); });
}

TEST(OperatorPorts, AdminConnectionsAtTheLimitStayAndOneMoreTakesTheOldestsPlace) {
  RouterConfig config;
  config.admin_port = 0;
  ExpectPlaces(AdminFrontOf(config), AdminRoutes(), kMaxAdminConnections);
}

TEST(OperatorPorts, MetricsConnectionsAtTheLimitStayAndOneMoreTakesTheOldestsPlace) {
  RouterConfig config;
  config.metrics_port = 0;
  ExpectPlaces(MetricsFrontOf(config), MetricsRoutes(), kMaxMetricsConnections);
}

}  // namespace
}  // namespace quire
