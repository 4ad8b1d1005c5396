// One gRPC call as its handler sees it: what the client says of it, its messages in, one after the
// other, and answers and a status out.
//
// Owner: its connection, until the stream has ended, and its handler. Event loop only, but for
// head(), which never changes.
//
// Invariants:
// 1. A handler is given one message at a time, never from inside a step: what it does to read on
//    takes effect behind it. From inside SetReading it may be, when nothing of it is under way. It
//    is let go when the stream has ended, never from inside one of its own functions.
// 2. After Finish, or OnCancelled, nothing that the handler does reaches the client.
// 3. A method that takes one message is begun with it and refused a second one.
// 4. Bytes of messages that wait are charged to the connection, its tenant and all that waits until
//    they go: that of a call that has ended may be with the background.
// 5. Nothing is unpacked on the event loop.
// 6. A client that takes nothing of an answer that has ended, for write_timeout, has it no more.
// 7. A message that is awaited has message_timeout to come whole: one that is begun, and the only
//    one of a method that takes one. A client that is held back by its window is not timed.
// 8. The call itself, its metadata, and answers that wait are charged to the connection before they
//    take memory, and to the tenant that its handler names. What finds no room ends the call.
// 9. Its headers and trailers are within what the client says it reads, or the call is reset.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "common/grpc/call_head.h"
#include "common/grpc/host.h"
#include "common/http2/grpc_framing.h"
#include "common/http2/session.h"
#include "common/memory_account.h"
#include "common/status.h"

namespace google::protobuf {
class MessageLite;
}

namespace quire {

class GrpcConnection;
struct GrpcMethod;

class GrpcCallHandler {
 public:
  // What a message means, to be done on the event loop; empty: the bytes are none of the method's.
  using Step = std::function<void()>;

  virtual ~GrpcCallHandler() = default;
  // Any thread, one at a time: reads what is there of a message, and touches nothing else. The
  // step runs unless the call has ended by then; the message stays where it is until it has.
  virtual Step Read(std::string_view message) = 0;
  virtual void OnHalfClose() {}
  // The client is gone, or its deadline has passed; at most once, nothing follows. Not when no
  // message was read yet of a method that takes one.
  virtual void OnCancelled() {}
  // What was sent with this note has gone to the system.
  virtual void OnTaken(uint64_t /*whose*/, uint64_t /*index*/) {}
  // Nothing of what was sent waits for the client any more.
  virtual void OnDrained() {}
};

class GrpcCall final : public std::enable_shared_from_this<GrpcCall> {
 public:
  // Of the answer that a message is of: outputs below `index` are the client's once it has gone.
  struct TakenNote {
    uint64_t whose = 0;
    uint64_t index = 0;
  };

  GrpcCall(GrpcConnection& connection, http2::StreamId stream, GrpcCallHead head);
  ~GrpcCall();
  GrpcCall(const GrpcCall&) = delete;

  // ---- for handlers
  const GrpcCallHead& head() const { return head_; }
  GrpcHost& host() const { return host_; }
  void AddInitialMetadata(std::string name, std::string value);  // before the first message
  void AddTrailingMetadata(std::string name, std::string value);
  void Send(const google::protobuf::MessageLite& message, std::optional<TakenNote> note = {});
  // The same of one that is whole already.
  void SendBytes(std::string_view message);
  size_t queued() const;  // bytes of what was sent that have not been given to the system
  // What the call holds counts for this tenant, too; at most once. False, here and below: the call
  // ends for that.
  bool CountFor(std::shared_ptr<MemoryAccount> tenant);
  // What the handler keeps of answers until they are sent, all of it.
  bool HoldAnswers(size_t bytes);
  void Finish(const GrpcEnd& end);
  // Ends the call at once, without a status: what waits for the client is dropped.
  void Reset();
  // Of methods that take many messages: whether further ones are read.
  void SetReading(bool reading);
  bool packed() const { return packed_; }  // in a step: its message came compressed
  bool open() const { return !finished_ && connection_ != nullptr; }
  bool drained() const;

  // ---- for the connection
  // Why there is no memory for another call, which can still be finished.
  std::optional<GrpcEnd> TakeMemory();
  // `method` outlives the call.
  void Begin(const GrpcMethod& method, http2::Encoding encoding);
  const GrpcMethod* method() const { return method_; }  // nullptr: not begun
  // Reads on, in a later turn, where this one had no more work for the connection.
  void PumpOn() { Pump(); }
  void OnData(std::string_view bytes);
  void OnEnd();
  void OnSent(size_t left);
  void OnDrained();
  void OnTaken(const TakenNote& note);
  Micros message_due() const { return message_due_; }  // 0: no message is awaited
  void OnMessageTimeout();
  void OnClosed();  // the stream, or the connection
  // Ends the call over its handler's head.
  void Abort(const GrpcEnd& end);

 private:
  struct Mark {
    uint64_t end;  // in the bytes of messages sent
    TakenNote note;
  };

  struct Waiting {
    std::string bytes;
    http2::Encoding packing;

    // An empty one takes memory too.
    size_t held() const { return sizeof(Waiting) + bytes.size(); }
  };
  struct Parsing;

  bool TakeMessage(std::string_view message);  // false: the call has ended
  void Pump();
  void Parse(Waiting message);
  void OnParsed(const Parsing& parsed);
  void AbortReading(const absl::Status& status);
  void RunStep(const GrpcCallHandler::Step& step);
  void CountHeld();
  void ReleaseHeld();
  void ConsumeWindow();
  void TimeMessage();
  MemoryHold::Accounts Beside() const;
  void RefuseForSize(const MemoryHold& hold);
  void Write(size_t size, absl::FunctionRef<void(char* at)> fill);
  bool ChargeAnswers(size_t queued, size_t held);
  void EndUnsent(absl::Status why);
  void SendHeaders();
  void SendTrailers(const absl::Status& status);
  void ResetUnsent();
  void Cancel();
  void SetTimer(Micros due);
  void OnTimer();
  void AwaitTaker();

  GrpcHost& host_;
  GrpcConnection* connection_;  // nullptr once the stream has ended
  const http2::StreamId stream_;
  const GrpcCallHead head_;
  const GrpcMethod* method_ = nullptr;
  std::shared_ptr<GrpcCallHandler> handler_;
  TimerId timer_ = 0;  // the deadline's; once finished, of who takes the answer

  http2::MessageReader reader_;
  std::deque<Waiting> waiting_;       // messages for the handler
  size_t waiting_bytes_ = 0;          // their held()
  std::shared_ptr<Parsing> parsing_;  // the message that is with the background
  size_t unconsumed_ = 0;             // of the stream's window
  std::optional<MemoryHold> hold_;    // of what waits, but for parsing_, which counts itself
  uint64_t messages_ = 0;             // that have come
  Micros message_due_ = 0;
  size_t max_message_bytes_ = 0;
  Micros message_timeout_ = 0;
  bool many_messages_ = false;
  bool reading_ = true;
  bool pumping_ = false;
  bool packed_ = false;
  bool half_closed_ = false;
  bool half_close_told_ = false;
  bool begun_ = false;  // the handler has a message, or is one of many

  GrpcMetadata initial_, trailing_;
  std::deque<Mark> marks_;
  uint64_t sent_ = 0;  // bytes of messages
  bool headers_sent_ = false;
  MemoryHold memory_;        // the call's, its metadata's, and that of answers that wait
  size_t own_bytes_ = 0;     // of it, but for answers
  size_t held_answers_ = 0;  // of it, what the handler keeps
  absl::Status unsent_;      // why an answer found no way: the call ends so
  bool finished_ = false;
  size_t not_taken_ = 0;  // of the answer, when it was looked at last
};

}  // namespace quire
