// What one turn of the loop does for a TLS connection, whatever its client sends.
#include "common/tls/edge_stream_asio.h"

#include <gtest/gtest.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#include <boost/asio/error.hpp>
#include <boost/asio/io_context.hpp>

#include <optional>

#include "common/runtime/adopt_asio.h"
#include "common/runtime/must_wait_asio.h"
#include "common/tls/tls_guard.h"
#include "common/tls_context.h"
#include "tests/support/test_certificates.h"

namespace quire {
namespace {

constexpr size_t kTurn = TlsGuard::kMaxRecordsPerTurn;

class EdgeStreamTest : public testing::Test {
 protected:
  EdgeStreamTest() {
    signal(SIGPIPE, SIG_IGN);
    const TestAuthority authority("authority");
    const TestPem pem = authority.Issue("edge.test");
    const TlsContext server_context = NewTlsContext(true);
    EXPECT_TRUE(UseIdentity(server_context, pem.certificate, pem.key).ok());
    int pair[2];
    EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, pair), 0);
    client_fd = pair[0];
    client = SSL_new(client_context.get());
    SSL_set_fd(client, client_fd);
    SSL_set_connect_state(client);
    EdgeStream::Ssl server(SSL_new(server_context.get()), SSL_free);
    SSL_set_fd(server.get(), pair[1]);
    SSL_set_accept_state(server.get());
    for (int i = 0; i < 8; ++i) {
      SSL_do_handshake(client);
      SSL_do_handshake(server.get());
    }
    EXPECT_TRUE(SSL_is_init_finished(server.get()));
    EdgeStream::Socket socket = AdoptSocket(context, pair[1]);
    EdgeStream::Error ignored;
    socket.non_blocking(true, ignored);
    stream.emplace(std::move(socket), std::move(server), idle_records);
  }
  ~EdgeStreamTest() override {
    SSL_free(client);
    ::close(client_fd);
    ERR_clear_error();
  }

  void Say(const std::string& record) {
    EXPECT_EQ(SSL_write(client, record.data(), static_cast<int>(record.size())),
              static_cast<int>(record.size()));
  }
  void UpdateKeys(int times) {
    for (int i = 0; i < times; ++i) {
      EXPECT_EQ(SSL_key_update(client, SSL_KEY_UPDATE_NOT_REQUESTED), 1);
      EXPECT_EQ(SSL_do_handshake(client), 1);
    }
  }
  std::string Read(size_t most = 1024) {
    std::string bytes(most, 0);
    bytes.resize(stream->Read(bytes.data(), most, error));
    return bytes;
  }

  boost::asio::io_context context;
  Metrics metrics;
  Counter& idle_records = metrics.AddCounter({.name = "idle_records", .help = "x"});
  TlsContext client_context = NewTlsContext(false);
  int client_fd = -1;
  SSL* client = nullptr;
  std::optional<EdgeStream> stream;
  EdgeStream::Error error;
  int reads_ = 0;
};

TEST_F(EdgeStreamTest, OneReadTakesTheRecordsOfATurn) {
  for (size_t i = 0; i < 2 * kTurn + 1; ++i) Say("x");
  EXPECT_EQ(Read(), std::string(kTurn, 'x'));
  EXPECT_TRUE(MustWait(error));
  EXPECT_EQ(Read(), std::string(kTurn, 'x'));
  EXPECT_EQ(Read(), "x");
}

TEST_F(EdgeStreamTest, RecordsWithoutAByteCountInATurnToo) {
  UpdateKeys(2 * kTurn);
  Say("x");
  for (int turn = 0; turn < 2; ++turn) {
    EXPECT_EQ(Read(), "");
    EXPECT_TRUE(MustWait(error)) << error.message();
  }
  EXPECT_EQ(Read(), "x");
  EXPECT_EQ(idle_records.value(), 0u);
}

TEST_F(EdgeStreamTest, RecordsWithoutAByteAtTheLimitPassAndOneMoreEndsIt) {
  const auto read_all = [this] {
    std::string all;
    do {
      all += Read();
    } while (all.empty() && MustWait(error) && reads_++ < 100);
    return all;
  };
  for (int i = 0; i < 2; ++i) {
    UpdateKeys(TlsGuard::kMaxIdleRecords - 1);
    Say("x");
    EXPECT_EQ(read_all(), "x");
  }
  UpdateKeys(TlsGuard::kMaxIdleRecords + 1);
  EXPECT_EQ(read_all(), "");
  EXPECT_EQ(error, boost::asio::error::connection_aborted);
  EXPECT_EQ(idle_records.value(), 1u);
  EXPECT_EQ(Read(), "");
  EXPECT_EQ(error, boost::asio::error::connection_aborted);
  EXPECT_EQ(idle_records.value(), 1u) << "counted once";
}

TEST_F(EdgeStreamTest, WhatWasNotTakenIsToldThoughTheSocketIsEmpty) {
  Say(std::string(100, 'x'));
  EXPECT_EQ(Read(10).size(), 10u);
  EXPECT_FALSE(error);
  bool told = false;
  stream->AwaitBytes([&](const EdgeStream::Error&) { told = true; });
  context.run();
  EXPECT_TRUE(told);
  EXPECT_EQ(Read().size(), 90u);
}

TEST_F(EdgeStreamTest, WritesGoOnWhereTheyStopped) {
  std::string bytes;
  for (int i = 0; i < 300'000; ++i) bytes += std::to_string(i);
  size_t written = 0;
  std::string got;
  for (int turn = 0; turn < 10'000 && got.size() < bytes.size(); ++turn) {
    const size_t sent = stream->Write(std::string_view(bytes).substr(written), error);
    EXPECT_LE(sent, kMaxTlsBytesPerTurn + (16u << 10));
    EXPECT_TRUE(!error || MustWait(error));
    written += sent;
    char buffer[16384];
    int count = 0;
    while ((count = SSL_read(client, buffer, sizeof(buffer))) > 0) {
      got.append(buffer, static_cast<size_t>(count));
    }
    ERR_clear_error();
  }
  EXPECT_TRUE(got == bytes);
}

TEST_F(EdgeStreamTest, EndsAreTold) {
  stream->EndWriting();
  char byte;
  EXPECT_LE(SSL_read(client, &byte, 1), 0);
  EXPECT_EQ(SSL_get_shutdown(client) & SSL_RECEIVED_SHUTDOWN, SSL_RECEIVED_SHUTDOWN);
  SSL_shutdown(client);
  EXPECT_EQ(Read(), "");
  EXPECT_EQ(error, boost::asio::error::eof);
}

}  // namespace
}  // namespace quire
