// Which certificates of one authority a worker takes as a router's, by handshakes in memory.
#include "worker/rpc/router_names.h"

#include <gtest/gtest.h>
#include <openssl/ssl.h>

#include "common/openssl.h"
#include "tests/support/test_certificates.h"
#include "worker/rpc/server_tls.h"

namespace quire {
namespace {

class LineLogger final : public Logger {
 public:
  LineLogger() : Logger(LogLevel::kInfo) {}
  std::vector<std::string> names;  // that were told

 private:
  void Write(LogLevel, std::string_view, std::span<const LogField> fields) override {
    names.push_back(fields.front().value.text);
  }
};

class RouterNamesTest : public testing::Test {
 protected:
  TlsContext Server(std::vector<std::string> names) {
    const TestPem own = authority.Issue("quire-worker", "serverAuth");
    return *MakeServerContext({authority.pem(), own.certificate, own.key},
                              std::make_shared<RouterNames>(std::move(names), refused, log));
  }
  // Whether a worker with that context ends its handshake with who shows `pem` well.
  static bool Takes(const TlsContext& server, const TestPem& pem) {
    const TlsContext client = NewTlsContext(false);
    EXPECT_TRUE(UseIdentity(client, pem.certificate, pem.key).ok());
    const unsigned char h2[] = {2, 'h', '2'};
    EXPECT_EQ(SSL_CTX_set_alpn_protos(client.get(), h2, sizeof(h2)), 0);
    const std::unique_ptr<SSL, openssl::Deleter<SSL_free>> near(SSL_new(client.get()));
    const std::unique_ptr<SSL, openssl::Deleter<SSL_free>> far(SSL_new(server.get()));
    BIO* near_end = nullptr;
    BIO* far_end = nullptr;
    EXPECT_EQ(BIO_new_bio_pair(&near_end, 0, &far_end, 0), 1);
    SSL_set_bio(near.get(), near_end, near_end);
    SSL_set_bio(far.get(), far_end, far_end);
    SSL_set_connect_state(near.get());
    SSL_set_accept_state(far.get());
    int done = 0;
    constexpr int kMaxFlights = 8;
    for (int flight = 0; flight < kMaxFlights && done != 1; ++flight) {
      SSL_do_handshake(near.get());
      done = SSL_do_handshake(far.get());
    }
    return done == 1;
  }
  bool Takes(const std::string& dns) {
    return Takes(Server({"quire-router"}), authority.Issue(dns, "clientAuth"));
  }

  LineLogger log;
  Counter refused;
  TestAuthority authority{"authority"};
};

TEST_F(RouterNamesTest, OnlyANameFromTheListIsARouters) {
  EXPECT_TRUE(Takes("quire-router"));
  EXPECT_TRUE(Takes("Quire-Router"));
  EXPECT_EQ(refused.value(), 0u);
  for (const char* other : {"quire-worker", "server", "quire-router.example", "quire-route", "*"}) {
    EXPECT_FALSE(Takes(other)) << other;
  }
  EXPECT_EQ(refused.value(), 5u);
}

TEST_F(RouterNamesTest, OneOfSeveralNamesIsEnough) {
  const TestPem both =
      authority.IssueFor("peer", "DNS:quire-worker,DNS:quire-router", "serverAuth,clientAuth");
  EXPECT_TRUE(Takes(Server({"quire-router"}), both));
  EXPECT_TRUE(Takes(Server({"one", "Quire-Worker"}), both));
  EXPECT_FALSE(Takes(Server({"one", "two"}), both));
}

TEST_F(RouterNamesTest, TheSubjectIsNoName) {
  EXPECT_FALSE(
      Takes(Server({"quire-router"}), authority.IssueFor("quire-router", "", "clientAuth")));
  EXPECT_EQ(log.names, std::vector<std::string>{"none"});
}

TEST_F(RouterNamesTest, UrisAndDnsNamesDoNotStandForEachOther) {
  const std::string uri = "spiffe://cluster/ns/prod/sa/router";
  EXPECT_TRUE(Takes(Server({uri}), authority.IssueFor("r", "URI:" + uri, "clientAuth")));
  EXPECT_FALSE(Takes(Server({uri}), authority.IssueFor("r", "URI:" + uri + "s", "clientAuth")));
  EXPECT_FALSE(Takes(Server({uri}), authority.IssueFor("r", "DNS:" + uri, "clientAuth")));
  EXPECT_FALSE(
      Takes(Server({"quire-router"}), authority.IssueFor("r", "URI:quire-router", "clientAuth")));
}

// A certificate that may only be shown by servers is no router's, whatever its name.
TEST_F(RouterNamesTest, TheUsageMustBeAClients) {
  const TlsContext server = Server({"quire-router"});
  EXPECT_FALSE(Takes(server, authority.Issue("quire-router", "serverAuth")));
  EXPECT_TRUE(Takes(server, authority.Issue("quire-router", "clientAuth")));
}

// What no authority vouches for is refused as that, and fills no log.
TEST_F(RouterNamesTest, NamesAreReadWhenTheAuthorityHasVouchedForThem) {
  const TestAuthority forger("authority");  // by the same name, with another key
  EXPECT_FALSE(Takes(Server({"quire-router"}), forger.Issue("quire-worker")));
  EXPECT_EQ(refused.value(), 0u);
  EXPECT_TRUE(log.names.empty());
}

TEST_F(RouterNamesTest, EachNameIsLoggedOnceUpToALimit) {
  const TlsContext server = Server({"quire-router"});
  const TestPem often = authority.Issue("worker-0");
  for (int i = 0; i < 3; ++i) EXPECT_FALSE(Takes(server, often));
  EXPECT_EQ(log.names, std::vector<std::string>{"worker-0"});
  for (size_t i = 1; i < kMaxToldNames; ++i) {
    EXPECT_FALSE(Takes(server, authority.Issue("worker-" + std::to_string(i))));
  }
  EXPECT_EQ(log.names.size(), kMaxToldNames);
  EXPECT_FALSE(Takes(server, authority.Issue("one-more")));
  EXPECT_EQ(log.names.size(), kMaxToldNames);
  EXPECT_EQ(refused.value(), 3 + kMaxToldNames);
}

}  // namespace
}  // namespace quire
