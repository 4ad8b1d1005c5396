// One gRPC call as its handler sees it: its headers, its messages one after the other, and answers
// and a status on the way out.
//
// Owner: its connection, until the stream has ended, and its handler. Event loop only, except for
// head(), which never changes.
//
// Invariants:
// 1. A handler gets one message at a time, never from inside a step: its call to read on takes
//    effect afterwards. SetReading may deliver one inside the call, when no message is under way.
//    The handler is released when the stream has ended, never from inside one of its own functions.
// 2. After Finish, or OnCancelled, nothing that the handler does reaches the client.
// 3. A method that takes one message begins with it and refuses a second one.
// 4. Waiting messages are charged to the connection, its tenant and the total of waiting bodies
//    until they are released: the background may still hold one of a call that has ended.
// 5. Nothing is unpacked on the event loop.
// 6. A client that reads nothing of a finished answer for write_timeout does not get the rest.
// 7. An awaited message has message_timeout to arrive: one that has begun, and the only one of a
//    method that takes one. Time in which the client's window holds it back does not count.
// 8. The call, its metadata, and waiting answers are charged to the connection before they take
//    memory, and to the tenant that its handler names. A charge that finds no room ends the call.
// 9. Its headers and trailers fit the client's announced limit; otherwise the call is reset.
#pragma once

#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "absl/container/inlined_vector.h"
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
  // A message's effect, run on the event loop; empty: the bytes are not a message of the method.
  using Step = std::function<void()>;

  virtual ~GrpcCallHandler() = default;
  // Any thread, one at a time: parses the bytes of a message, and touches nothing else. The step
  // runs unless the call has ended by then; the message stays in place until it has run.
  virtual Step Read(std::string_view message) = 0;
  virtual void OnHalfClose() {}
  // The client is gone, or its deadline has passed; called at most once, and nothing follows. Not
  // called when a method that takes one message has read none yet.
  virtual void OnCancelled() {}
  // The data that was sent with this note has gone to the system.
  virtual void OnTaken(uint64_t /*whose*/, uint64_t /*index*/) {}
  // Nothing of what was sent waits for the client any more.
  virtual void OnDrained() {}
};

class GrpcCall final : public std::enable_shared_from_this<GrpcCall> {
 public:
  // For an answer's message: outputs below `index` have reached the client once it has gone.
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
  // The same for a message that is already complete.
  void SendBytes(std::string_view message);
  size_t queued() const;  // bytes of sent data that the system has not taken
  // What the call holds counts for this tenant, too; at most once. False, here and below: the call
  // ends because of that.
  bool CountFor(std::shared_ptr<MemoryAccount> tenant);
  // What the handler keeps of answers in all.
  bool HoldAnswers(size_t bytes);
  void Finish(const GrpcEnd& end);
  // Ends the call at once, without a status: data that waits for the client is dropped.
  void Reset();
  // For methods that take many messages: whether further ones are read.
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
  // Reads on, in a later turn, where this turn had no more work for the connection.
  void PumpOn() { Pump(); }
  void OnData(std::string_view bytes);
  void OnEnd();
  void OnSent(size_t left);
  void OnDrained();
  void OnTaken(const TakenNote& note);
  Micros message_due() const { return message_due_; }  // 0: no message is awaited
  void OnMessageTimeout();
  void OnClosed();  // the stream, or the connection
  // Ends the call from its handler's status.
  void Abort(const GrpcEnd& end);

 private:
  struct Mark {
    uint64_t end;  // in the bytes of messages sent
    TakenNote note;
  };

  struct Waiting {
    std::string bytes;
    http2::Encoding packing;

    // An empty one takes memory too: itself, its links, and the allocator's overhead.
    size_t held() const { return sizeof(Waiting) + 3 * sizeof(void*) + bytes.size(); }
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
  TimerId timer_ = 0;  // the deadline's; once finished, the timeout of the reader of the answer

  http2::MessageReader reader_;
  std::list<Waiting> waiting_;        // messages for the handler
  size_t waiting_bytes_ = 0;          // their held()
  std::shared_ptr<Parsing> parsing_;  // the message that is with the background
  size_t unconsumed_ = 0;             // of the stream's window
  std::optional<MemoryHold> hold_;    // of waiting data, except for parsing_, which counts itself
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

  absl::InlinedVector<GrpcMetadata::value_type, 2> initial_, trailing_;
  std::list<Mark> marks_;
  uint64_t sent_ = 0;  // bytes of messages
  bool headers_sent_ = false;
  MemoryHold memory_;        // the call's, its metadata's, and that of answers that wait
  size_t own_bytes_ = 0;     // of it, without answers
  size_t held_answers_ = 0;  // of it, the part that the handler keeps
  absl::Status unsent_;      // why an answer found no memory: the call ends with it
  bool finished_ = false;
  size_t not_taken_ = 0;  // of the answer, at the last check
};

}  // namespace quire
