// How much one TLS connection may cost the event loop, counted in records: a number in each turn,
// whatever they hold, and a number in a row that bring no byte (key updates, attempts to
// renegotiate).
//
// Owner: the connection's EdgeStream; event loop only; it is not moved while OpenSSL holds its
// address.
//
// Invariants:
// 1. OpenSSL reads at most kMaxRecordsPerTurn records between two NewTurns: beyond that its socket
//    appears empty.
// 2. over() once kMaxIdleRecords + 1 records came without a byte between them.
#pragma once

struct ssl_st;

namespace quire {

class TlsGuard {
 public:
  static constexpr int kMaxRecordsPerTurn = 8;  // of 16 KiB at most
  static constexpr int kMaxIdleRecords = 32;

  TlsGuard() = default;
  TlsGuard(const TlsGuard&) = delete;
  TlsGuard& operator=(const TlsGuard&) = delete;

  // Call once, when the handshake has ended; `ssl` has a socket of its own (SSL_set_fd), and reads
  // no more when this object is gone.
  void Watch(ssl_st* ssl);
  void NewTurn() { reads_left_ = 2 * kMaxRecordsPerTurn; }  // the header of a record, its rest
  void GotBytes() { idle_records_ = 0; }
  bool over() const { return idle_records_ > kMaxIdleRecords; }

 private:
  bool MayRead();

  int reads_left_ = 0;
  int idle_records_ = 0;
};

}  // namespace quire
