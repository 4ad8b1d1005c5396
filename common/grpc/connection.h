// One client's HTTP/2 connection that carries gRPC, over bytes alone: the guard, the session, and
// the calls that run on it.
//
// Owner: the socket of the bytes; event loop only.
//
// Invariants:
// 1. The session gets no byte after a verdict of the guard, which ends the connection.
// 2. A call begins only when its headers name a method that is served, and the gate admits its
//    client.
// 3. Data that is reported as taken has gone to the system.
// 4. The work of one turn of the loop for a connection is bounded by turn_work_bytes; the rest
//    waits for a later turn.
// 5. What the program holds for the client counts in the connection's account: its own objects, its
//    calls, their messages and answers. Messages that wait also count in the host's account of
//    bodies, and those of a tenant in that tenant's. A call that finds no room is refused.
// 6. A connection without a call is closed after idle_timeout; one whose client sends nothing for
//    keep_alive is pinged, and ends when that is not answered. A call whose message is awaited for
//    message_timeout ends. A connection of max_connection_age is closed.
// 7. After Close nothing is called back.
#pragma once

#include <algorithm>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "common/grpc/call.h"
#include "common/grpc/host.h"
#include "common/grpc/http2_guard.h"
#include "common/grpc/methods.h"
#include "common/http2/session.h"
#include "common/runtime/timer.h"

namespace quire {

class GrpcConnection final : public http2::Handler {
 public:
  // The carrier of the bytes.
  class Transport {
   public:
    virtual ~Transport() = default;
    // Send has something, or the connection is over. Called once until Send has been called.
    virtual void WantsToSend() = 0;
    // The client is gone without notice: close the socket.
    virtual void GiveUp() = 0;
    // behind() no more.
    virtual void ReadOn() {}
  };

  // All of them outlive the connection.
  GrpcConnection(GrpcHost& host, const GrpcMethods& methods, Transport& transport);
  ~GrpcConnection() override;  // after Close

  // The client of these calls, for the gate. Before Start.
  void Sit(std::shared_ptr<ClientSeat> seat) { seat_ = std::move(seat); }
  // A call is open that is more than a probe.
  bool at_work() const {
    return std::any_of(calls_.begin(), calls_.end(), [](const auto& call) {
      return !call.second->head().path.starts_with(kHealthPath);
    });
  }

  void Start();
  void Receive(std::string_view bytes);
  // Some of the received bytes wait for a later turn: give it no more until then.
  bool behind() const { return !rest_.empty(); }
  // Appends the data to send, about `most` bytes at a time.
  void Send(std::string& out, size_t most);
  // The system has taken this many more bytes of what Send returned.
  void Written(size_t bytes);
  // There is nothing more to receive or send.
  bool over() const;
  // The connection has ended: so do its calls.
  void Close();

  // Asks the client to use another connection for new calls; running ones continue, then the
  // connection is over.
  void Leave();
  // Ends the calls under way, and the connection.
  void CancelCalls(const absl::Status& status);
  size_t calls() const { return calls_.size(); }

  // ---- for calls
  GrpcHost& host() { return host_; }
  http2::Session& session() { return session_; }
  void WantsToSend();
  // What remains of this Send contains the data that the note is about.
  void AwaitWritten(std::shared_ptr<GrpcCall> call, GrpcCall::TakenNote note);
  std::string_view encodings() const;  // of messages, that are read here
  // A call awaits a message until then.
  void AwaitMessage(Micros due);
  // False: no more in this turn; the call reads on in a later one.
  bool Work(size_t cost, GrpcCall& call);
  const std::shared_ptr<MemoryAccount>& memory() const { return memory_; }
  // The status of a call for which `hold` just had no room.
  GrpcEnd NoMemory(const MemoryHold& hold);

  // http2::Handler:
  void OnHeaders(http2::StreamId stream, const http2::HeaderBlock& block) override;
  void OnData(http2::StreamId stream, std::string_view bytes) override;
  void OnEnd(http2::StreamId stream) override;
  void OnSent(http2::StreamId stream, size_t left) override;
  void OnClosed(http2::StreamId stream, http2::ErrorCode code) override;
  void OnPingAnswered(uint64_t payload) override;
  void OnFrameSent(uint8_t type, uint8_t flags) override;
  void OnResetSent(http2::ErrorCode code) override;
  bool OnDecoded(size_t bytes) override;

 private:
  struct Note {
    uint64_t end;  // in the bytes that Send gave
    std::shared_ptr<GrpcCall> call;
    GrpcCall::TakenNote note;
  };

  struct Beginning {
    const GrpcMethod* method = nullptr;
    http2::Encoding encoding = http2::Encoding::kIdentity;
    std::optional<GrpcEnd> refusal = {};
    bool names_encodings = false;  // those that are known, beside a refusal
  };

  void Take(std::string_view bytes);
  void Doom(const char* limit);
  void ContinueLater();
  void NextTurn();
  std::shared_ptr<GrpcCall> Find(http2::StreamId stream) const;
  Beginning BeginningOf(const GrpcCallHead& head, const http2::HeaderBlock& block);
  size_t CallsOf(const GrpcMethod& method) const;
  void RefuseByHttp(http2::StreamId stream, int status);
  void RefuseWaiting(http2::StreamId stream);
  void ChargeOwn();
  void CountRefusedStreams();
  void SayWhichWasLast();
  Micros Due() const;
  void SetTimer();
  void OnTimer();
  void EndSlowCalls(Micros now);
  void LeaveIfAged(Micros now);

  GrpcHost& host_;
  const GrpcMethods& methods_;
  Transport& transport_;
  std::shared_ptr<ClientSeat> seat_ = std::make_shared<ClientSeat>();
  http2::Session session_;
  Http2Guard guard_;
  const std::shared_ptr<MemoryAccount> memory_;
  MemoryHold own_memory_;       // of the connection itself
  std::string rest_;            // received, for a later turn
  size_t turn_work_ = 0;        // done for this connection in this turn
  Timer turn_{host_.executor};  // the next one, while something waits for it
  std::vector<std::shared_ptr<GrpcCall>> pumped_later_;  // in it
  std::map<http2::StreamId, std::shared_ptr<GrpcCall>> calls_;
  // Streams that are no gRPC calls, by their status, until their request continues: those that end
  // there are answered completely.
  std::map<http2::StreamId, int> refusals_;
  Micros refusals_due_ = 0;       // of all of them
  uint64_t streams_refused_ = 0;  // that are counted

  uint64_t sent_bytes_ = 0;                         // that Send gave
  uint64_t written_bytes_ = 0;                      // of these
  std::deque<Note> notes_;                          // by `end`
  std::vector<std::shared_ptr<GrpcCall>> drained_;  // in a Send
  bool told_to_send_ = false;

  bool doomed_ = false;     // the rest is to be sent, and nothing received
  bool leaving_ = false;    // the client has been notified
  bool went_away_ = false;  // it knows which call was its last
  bool closed_ = false;
  Micros heard_at_ = 0;
  Micros pinged_at_ = 0;  // 0: no ping waits
  Micros noticed_at_ = 0;
  Micros idle_since_ = 0;  // while there is no call
  Micros ages_at_ = 0;     // 0: never, or not any more
  Micros ends_at_ = 0;     // once it has aged; 0: when its calls have ended
  Timer timer_{host_.executor};
};

}  // namespace quire
