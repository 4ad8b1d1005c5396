// What one limit allows times what another allows: connections × calls × metadata × messages that
// wait × answers that wait, in one account.
#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "common/grpc/held_memory.h"
#include "tests/router/support/wire_client.h"

namespace quire {
namespace {

using wire::Data;
using wire::GenerateBytes;
using wire::Headers;
using wire::kGenerate;
using wire::Message;
using wire::Post;
using wire::WireClient;

class MemoryProducts : public testing::Test {
 protected:
  static constexpr size_t kConnections = 24;
  static constexpr uint32_t kCalls = 48;
  static constexpr size_t kLimit = 8u << 20;

  struct Nowhere final : GrpcConnection::Transport {
    void WantsToSend() override {}
    void GiveUp() override {}
  };

  MemoryProducts() : client_(Limits(), kLimit, kLimit) {
    tenant_ =
        std::make_shared<MemoryAccount>(kLimit / 2, client_.services.memory, MemoryScope::kTenant);
    client_.pipeline.memory = tenant_;
    client_.pipeline.mode = FakePipeline::Mode::kManual;
  }
  ~MemoryProducts() override {
    for (const auto& connection : connections_) connection->Close();
    connections_.clear();
    client_.Wait(kMicrosPerMilli);
    EXPECT_EQ(tenant_->bytes(), 0u) << "all is given back";
  }
  static GrpcEdgeLimits Limits() {
    GrpcEdgeLimits limits;
    limits.max_connection_memory_bytes = kLimit / 4;
    return limits;
  }
  size_t Held() const { return client_.services.memory->bytes(); }
  uint64_t Refused(MemoryScope scope) const { return client_.services.memory->refused(scope); }

  // As the server does: none is taken for which there is no room. Clients read no answer.
  void Connect() {
    if (!MemoryHold(client_.services.memory).TryResize(kConnectionBytes)) return;
    connections_.push_back(
        std::make_unique<GrpcConnection>(*client_.host, client_.methods, nowhere_));
    connections_.back()->Start();
    Say(*connections_.back(), wire::kPreface + wire::Setting(4, 0));  // no window
  }
  void Say(GrpcConnection& connection, std::string_view bytes) {
    connection.Receive(bytes);
    client_.Wait(kMicrosPerMilli);
    for (std::string out;; out.clear()) {
      connection.Send(out, 64u << 10);
      if (out.empty()) break;
      connection.Written(out.size());
    }
    EXPECT_LE(Held(), kLimit);
    EXPECT_LE(tenant_->bytes(), tenant_->limit());
    EXPECT_LE(connection.memory()->bytes(), connection.memory()->limit() + kCallBytes);
  }

  WireClient client_;
  Nowhere nowhere_;
  std::shared_ptr<MemoryAccount> tenant_;
  std::vector<std::unique_ptr<GrpcConnection>> connections_;
};

TEST_F(MemoryProducts, ConnectionsTimesCallsTimesMetadataStayInTheAccount) {
  const wire::HeaderPairs metadata = {{"x-large", std::string(12'000, 'm')}};
  for (size_t i = 0; i < kConnections; ++i) Connect();
  for (const auto& connection : connections_) {
    for (uint32_t call = 0; call < kCalls; ++call) {
      Say(*connection, Headers(2 * call + 1, Post(kGenerate, metadata)) +
                           Data(2 * call + 1, Message(GenerateBytes()), wire::kEndStream));
    }
  }
  EXPECT_GT(Held(), kLimit / 4);
  EXPECT_GT(client_.pipeline.live.size(), 100u);
  EXPECT_LT(client_.pipeline.live.size(), kConnections * kCalls);
  EXPECT_GT(Refused(MemoryScope::kTenant) + Refused(MemoryScope::kConnection) +
                Refused(MemoryScope::kProcess),
            100u);
}

TEST_F(MemoryProducts, ConnectionsTimesMessagesThatWaitStayInTheAccount) {
  const std::string part = Message(std::string(60'000, 'a')).substr(0, 50'000);
  for (size_t i = 0; i < kConnections; ++i) Connect();
  for (const auto& connection : connections_) {
    for (uint32_t call = 0; call < kCalls; ++call) {
      const uint32_t stream = 2 * call + 1;
      Say(*connection, Headers(stream, Post(kGenerate)) + Data(stream, part.substr(0, 16'000)) +
                           Data(stream, part.substr(16'000, 16'000)));
    }
  }
  EXPECT_GT(tenant_->bytes(), kLimit / 4);
  EXPECT_GT(Refused(MemoryScope::kTenant), 100u);
}

TEST_F(MemoryProducts, ConnectionsTimesAnswersThatWaitStayInTheAccount) {
  for (size_t i = 0; i < kConnections; ++i) Connect();
  for (const auto& connection : connections_) {
    for (uint32_t call = 0; call < kCalls; ++call) {
      Say(*connection, Headers(2 * call + 1, Post(kGenerate)) +
                           Data(2 * call + 1, Message(GenerateBytes()), wire::kEndStream));
    }
  }
  const auto live = client_.pipeline.live;
  for (const auto& [id, one] : live) {
    one.sink->OnStarted(FakePipeline::StartedFor(one.request));
    Delta delta = FakePipeline::Token(0, 0);
    delta.text = std::string(20'000, 't');
    one.sink->OnDelta(delta);
    client_.Wait(1);
    EXPECT_LE(Held(), kLimit);
    EXPECT_LE(tenant_->bytes(), tenant_->limit());
  }
  client_.Wait(kMicrosPerMilli);
  EXPECT_GT(tenant_->bytes(), kLimit / 4);
  EXPECT_GT(Refused(MemoryScope::kTenant), 100u);
  EXPECT_GT(client_.pipeline.cancelled.size(), 100u) << "who finds no room ends";
}

}  // namespace
}  // namespace quire
