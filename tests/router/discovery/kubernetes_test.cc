// The list and watch of EndpointSlices against an API server that a test speaks for.
#include "discovery_fixture.h"
#include "router/discovery/endpoint_slices.h"
#include "router/discovery/kubernetes_source.h"

namespace quire {
namespace {

std::string Slice(const std::string& name, const std::string& version, const Targets& addresses,
                  const std::string& ports = R"([{"name":"wire","port":9000}])",
                  const std::string& conditions = R"({"ready":true})") {
  std::string endpoints;
  for (const std::string& address : addresses) {
    if (!endpoints.empty()) endpoints += ',';
    endpoints += R"({"addresses":[")" + address + R"("],"conditions":)" + conditions + "}";
  }
  return R"({"metadata":{"name":")" + name + R"(","resourceVersion":")" + version +
         R"("},"addressType":"IPv4","endpoints":[)" + endpoints + R"(],"ports":)" + ports + "}";
}

std::string List(const std::string& version, const Targets& slices, const std::string& next = "") {
  std::string items;
  for (const std::string& slice : slices) items += (items.empty() ? "" : ",") + slice;
  return R"({"kind":"EndpointSliceList","metadata":{"resourceVersion":")" + version +
         R"(","continue":")" + next + R"("},"items":[)" + items + "]}";
}

std::string Event(const std::string& type, const std::string& object) {
  return R"({"type":")" + type + R"(","object":)" + object + "}\n";
}

std::string Bookmark(const std::string& version) {
  return Event("BOOKMARK", R"({"metadata":{"resourceVersion":")" + version + R"("}})");
}

TEST(EndpointSlices, TakesEndpointsThatDoNotTerminate) {
  EndpointSlices slices("");
  const std::string body = List(
      "7", {Slice("a", "5", {"10.0.0.1"}),
            Slice("b", "6", {"10.0.0.2"}, R"([{"name":"wire","port":9000}])",
                  R"({"ready":false,"serving":true,"terminating":true})"),
            Slice("c", "7", {"10.0.0.3"}, R"([{"name":"wire","port":9000}])", R"({"ready":false})"),
            R"({"metadata":{"name":"d"},"endpoints":null,"ports":null})"});
  ASSERT_TRUE(slices.AddPage(body, true).ok());
  EXPECT_EQ(slices.Targets(), (Targets{"10.0.0.1:9000", "10.0.0.3:9000"}));
  EXPECT_EQ(slices.resource_version(), "7");
}

TEST(EndpointSlices, ChoosesThePort) {
  const std::string both =
      R"([{"name":"http","port":9001},{"name":"wire","port":9000},{"name":"none","port":null}])";
  const std::string one = R"([{"port":7000}])";
  const auto targets = [](const std::string& port, const std::string& ports) {
    EndpointSlices slices(port);
    EXPECT_TRUE(slices.AddPage(List("1", {Slice("a", "1", {"10.0.0.1"}, ports)}), true).ok());
    return slices.Targets();
  };
  EXPECT_EQ(targets("", both), Targets{"10.0.0.1:9000"});
  EXPECT_EQ(targets("http", both), Targets{"10.0.0.1:9001"});
  EXPECT_EQ(targets("1234", both), Targets{"10.0.0.1:1234"});
  EXPECT_EQ(targets("", one), Targets{"10.0.0.1:7000"});
  EXPECT_EQ(targets("http", one), Targets{});
  EXPECT_EQ(targets("", R"([{"name":"a","port":1},{"name":"b","port":2}])"), Targets{});
}

TEST(EndpointSlices, WhatMakesNoSenseChangesNothing) {
  EndpointSlices slices("");
  ASSERT_TRUE(slices.AddPage(List("1", {Slice("a", "1", {"10.0.0.1"})}), true).ok());
  for (const std::string& body :
       {std::string("{"), std::string("[]"), std::string("{}"), std::string(R"({"metadata":{}})"),
        List("", {}), List("2", {"7"}), List("2", {"{}"}), List("2", {Slice("b", "2", {"a b"})}),
        List("2", {Slice("b", "2", {"10.0.0.2"}, R"([{"port":70000}])")}),
        List("2", {Slice("b", "2", {"10.0.0.2"}, R"({"port":1})")})}) {
    EXPECT_FALSE(slices.AddPage(body, true).ok()) << body;
    EXPECT_FALSE(slices.Apply(body).ok()) << body;
  }
  EXPECT_FALSE(slices.Apply(Event("SOMETHING", Slice("a", "2", {}))).ok());
  EXPECT_FALSE(slices.Apply(Event("ERROR", R"({"code":500,"message":"etcd is away"})")).ok());
  EXPECT_EQ(slices.Targets(), Targets{"10.0.0.1:9000"});
  EXPECT_EQ(slices.resource_version(), "1");
}

TEST(EndpointSlices, TakesAsManyEndpointsAsTheLimitAndNotOneMore) {
  EndpointSlices slices("");
  Targets addresses(kMaxEndpoints, "10.0.0.1");
  EXPECT_TRUE(slices.AddPage(List("1", {Slice("a", "1", addresses)}), true).ok());
  addresses.emplace_back("10.0.0.2");
  EXPECT_FALSE(slices.AddPage(List("2", {Slice("a", "2", addresses)}), true).ok());
  EXPECT_EQ(slices.resource_version(), "1");
}

TEST(EndpointSlices, TakesAsManySlicesAsTheLimitAndNotOneMore) {
  EndpointSlices slices("");
  Targets all;
  for (size_t i = 0; i < kMaxEndpointSlices; ++i) all.push_back(Slice(std::to_string(i), "1", {}));
  EXPECT_TRUE(slices.AddPage(List("1", all), true).ok());
  EXPECT_TRUE(slices.Apply(Event("MODIFIED", Slice("7", "2", {"10.0.0.1"}))).ok());
  EXPECT_FALSE(slices.Apply(Event("ADDED", Slice("one more", "3", {}))).ok());
  EXPECT_TRUE(slices.Apply(Event("DELETED", Slice("0", "4", {}))).ok());
  EXPECT_TRUE(slices.Apply(Event("ADDED", Slice("one more", "5", {}))).ok());
  EXPECT_EQ(slices.Targets(), Targets{"10.0.0.1:9000"});
}

// The API server: a test answers what was asked last.
class Kubernetes : public DiscoveryTest {
 protected:
  class Server final : public Fetcher {
   public:
    struct Open final : Fetch {
      explicit Open(Server& server) : server(server) {}
      ~Open() override { server.receiver = nullptr; }
      Server& server;
    };
    std::unique_ptr<Fetch> Get(const std::string& path, Micros timeout,
                               FetchReceiver& to) override {
      EXPECT_EQ(receiver, nullptr) << "one at a time";
      EXPECT_GT(timeout, 0);
      paths.push_back(path);
      receiver = &to;
      return std::make_unique<Open>(*this);
    }
    void Head(int status, uint32_t retry_after_s = 0) { receiver->OnHead(status, retry_after_s); }
    // Unless the source has gone away meanwhile.
    void Body(std::string_view bytes) {
      if (receiver != nullptr) receiver->OnBody(bytes);
    }
    void End(const absl::Status& status = absl::OkStatus()) {
      if (receiver != nullptr) receiver->OnEnd(status);
    }
    void Answer(int status, std::string_view body) {
      Head(status);
      Body(body);
      End();
    }
    FetchReceiver* receiver = nullptr;
    std::vector<std::string> paths;
  };

  Kubernetes()
      : source_(std::make_unique<KubernetesSource>(KubernetesOptions{"quire-workers", "prod", ""},
                                                   server_, runtime_, metrics_of_source_)) {
    source_->Start();
  }

  void ListIs(const std::string& body) {
    server_.Answer(200, body);
    RunFor(1);
  }
  const std::string& asked() const { return server_.paths.back(); }
  bool Watching() const { return asked().find("watch=1") != std::string::npos; }

  Server server_;
  std::unique_ptr<KubernetesSource> source_;
};

TEST_F(Kubernetes, ListsInPagesThenWatches) {
  EXPECT_EQ(asked(),
            "/apis/discovery.k8s.io/v1/namespaces/prod/endpointslices?labelSelector="
            "kubernetes.io%2Fservice-name%3Dquire-workers&limit=250");
  ListIs(List("5", {Slice("a", "3", {"10.0.0.1"})}, "to/ken="));
  EXPECT_TRUE(found_.empty()) << "half a list is none";
  EXPECT_TRUE(asked().ends_with("&limit=250&continue=to%2Fken%3D")) << asked();
  ListIs(List("5", {Slice("b", "4", {"10.0.0.2"})}));
  EXPECT_EQ(found_.back(), (Targets{"10.0.0.1:9000", "10.0.0.2:9000"}));
  EXPECT_TRUE(Watching());
  EXPECT_TRUE(asked().ends_with("&resourceVersion=5")) << asked();
}

TEST_F(Kubernetes, WatchesSeveralServicesAsOne) {
  source_ = std::make_unique<KubernetesSource>(
      KubernetesOptions{"kubernetes.io/service-name in (a,b)", "prod", ""}, server_, runtime_,
      metrics_of_source_);
  source_->Start();
  EXPECT_TRUE(
      asked().starts_with("/apis/discovery.k8s.io/v1/namespaces/prod/endpointslices?labelSelector="
                          "kubernetes.io%2Fservice-name%20in%20%28a%2Cb%29&"))
      << asked();
}

TEST_F(Kubernetes, FollowsChangesWhereverTheBytesAreCut) {
  ListIs(List("5", {Slice("a", "3", {"10.0.0.1"})}));
  const std::string events = Event("ADDED", Slice("b", "6", {"10.0.0.2"})) + Bookmark("9") +
                             Event("MODIFIED", Slice("a", "10", {"10.0.0.3"})) +
                             Event("DELETED", Slice("b", "11", {}));
  server_.Head(200);
  for (const char byte : events) server_.Body({&byte, 1});
  EXPECT_EQ(found_.back(), Targets{"10.0.0.3:9000"});
  EXPECT_EQ(found_.size(), 4u);
  // The server's time for a watch is up: the next one goes on from there, without a list.
  RunFor(KubernetesSource::kWatchSeconds * kMicrosPerSecond);
  server_.End();
  RunFor(1);
  EXPECT_TRUE(asked().ends_with("&resourceVersion=11")) << asked();
  EXPECT_EQ(metrics_of_source_.failures.value(), 0u);
}

TEST_F(Kubernetes, ADroppedWatchGoesOnFromItsLastVersion) {
  ListIs(List("5", {Slice("a", "3", {"10.0.0.1"})}));
  server_.Head(200);
  server_.Body(Bookmark("8") + R"({"type":"ADD)");
  server_.End(absl::UnavailableError("reset"));
  const size_t before = server_.paths.size();
  RunFor(KubernetesSource::kFirstRetry);
  ASSERT_EQ(server_.paths.size(), before + 1);
  EXPECT_TRUE(asked().ends_with("&resourceVersion=8")) << asked();
  server_.Head(200);
  server_.Body(Event("ADDED", Slice("b", "9", {"10.0.0.2"})));
  EXPECT_EQ(found_.back().size(), 2u) << "the half line of the lost watch is forgotten";
}

TEST_F(Kubernetes, AVersionThatTheServerForgotIsListedAgain) {
  ListIs(List("5", {Slice("a", "3", {"10.0.0.1"})}));
  server_.Head(200);
  server_.Body(Event("ERROR", R"({"kind":"Status","code":410,"reason":"Expired"})"));
  RunFor(KubernetesSource::kFirstRetry);
  EXPECT_FALSE(Watching());
  ListIs(List("50", {Slice("b", "40", {"10.0.0.2"})}));
  EXPECT_EQ(found_.back(), Targets{"10.0.0.2:9000"}) << "what the list lacks is gone";
  // The same as a status, of the watch and of a page.
  server_.Answer(410, "gone");
  RunFor(KubernetesSource::kLastRetry);
  EXPECT_FALSE(Watching());
  ListIs(List("60", {}, "next"));
  server_.Answer(410, "gone");
  RunFor(KubernetesSource::kLastRetry);
  EXPECT_TRUE(asked().ends_with("&limit=250")) << "from the first page: " << asked();
}

TEST_F(Kubernetes, AnEventThatMakesNoSenseLeadsToAList) {
  ListIs(List("5", {Slice("a", "3", {"10.0.0.1"})}));
  server_.Head(200);
  server_.Body("rubbish\n" + Event("DELETED", Slice("a", "6", {})));
  EXPECT_EQ(found_.back(), Targets{"10.0.0.1:9000"});
  RunFor(KubernetesSource::kFirstRetry);
  EXPECT_FALSE(Watching());
}

TEST_F(Kubernetes, KeepsItsListWhileTheServerIsAwayAndAsksEverMoreRarely) {
  ListIs(List("5", {Slice("a", "3", {"10.0.0.1"})}));
  size_t tries = 0;
  const Micros begun = world_.clock().Now();
  while (world_.clock().Now() - begun < 600 * kMicrosPerSecond) {
    if (server_.receiver != nullptr) {
      ++tries;
      server_.End(absl::UnavailableError("connection refused"));
    }
    RunFor(100 * kMicrosPerMilli);
  }
  EXPECT_EQ(found_.size(), 1u);
  EXPECT_GE(tries, 20u);
  EXPECT_LE(tries, 60u);
}

TEST_F(Kubernetes, WaitsAsLongAsTheServerAsksAndNoLongerThanTheLimit) {
  server_.Head(429, 7);
  server_.End();
  RunFor(7 * kMicrosPerSecond - 1);
  EXPECT_EQ(server_.paths.size(), 1u);
  RunFor(1);
  EXPECT_EQ(server_.paths.size(), 2u);
  server_.Head(503, 100'000);
  server_.End();
  RunFor(KubernetesSource::kLastRetry);
  EXPECT_EQ(server_.paths.size(), 3u);
}

TEST_F(Kubernetes, RefusalsAreFailures) {
  for (const int status : {401, 403, 404, 500, 301, 204}) {
    const uint64_t before = metrics_of_source_.failures.value();
    server_.Answer(status, R"({"message":"no"})");
    EXPECT_EQ(metrics_of_source_.failures.value(), before + 1) << status;
    RunFor(KubernetesSource::kLastRetry);
  }
  EXPECT_TRUE(found_.empty());
  ListIs(List("5", {Slice("a", "3", {"10.0.0.1"})}));
  EXPECT_EQ(found_.size(), 1u);
}

TEST_F(Kubernetes, AWatchThatEndsAtOnceIsNotAskedInACircle) {
  ListIs(List("5", {}));
  for (int i = 0; i < 5; ++i) {
    ASSERT_NE(server_.receiver, nullptr);
    server_.Head(200);
    server_.End();
    EXPECT_EQ(server_.receiver, nullptr);
    RunFor(KubernetesSource::kLastRetry);
  }
}

TEST_F(Kubernetes, AnEventAsLongAsTheLimitPassesAndOneByteMoreDoesNot) {
  ListIs(List("5", {}));
  std::string line = Bookmark("6");
  line.pop_back();
  line += std::string(KubernetesSource::kMaxEventBytes - line.size(), ' ');
  server_.Head(200);
  server_.Body(line + "\n");
  ASSERT_NE(server_.receiver, nullptr);
  server_.Body(line + " ");
  EXPECT_EQ(server_.receiver, nullptr);
  EXPECT_EQ(metrics_of_source_.failures.value(), 1u);
}

TEST_F(Kubernetes, APageOverTheLimitIsGivenUp) {
  server_.Head(200);
  server_.Body(std::string(KubernetesSource::kMaxPageBytes, ' '));
  ASSERT_NE(server_.receiver, nullptr);
  server_.Body(" ");
  EXPECT_EQ(server_.receiver, nullptr);
}

TEST_F(Kubernetes, CanGoAtAnyTime) {
  source_.reset();
  EXPECT_EQ(server_.receiver, nullptr);
  RunFor(kMicrosPerSecond);
  EXPECT_EQ(server_.paths.size(), 1u);
}

}  // namespace
}  // namespace quire
