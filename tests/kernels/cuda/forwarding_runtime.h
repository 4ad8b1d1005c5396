// A runtime that hands every call on to another: for tests that count, watch or change some.
//
// Owned as any Runtime is; one thread.
#pragma once

#include <memory>

#include "kernels/cuda/runtime/runtime.h"

namespace quire::kernels::cuda::test {

class ForwardingRuntime : public runtime::Runtime {
 public:
  using Error = runtime::Error;
  using StreamId = runtime::StreamId;
  using EventId = runtime::EventId;
  using GraphId = runtime::GraphId;

  uint32_t SharedBytesPerBlock() const override { return body_->SharedBytesPerBlock(); }
  Error Allocate(size_t n, void** at) override { return body_->Allocate(n, at); }
  Error Free(void* at) override { return body_->Free(at); }
  Error AllocateMapped(size_t n, void** host, void** at) override {
    return body_->AllocateMapped(n, host, at);
  }
  Error FreeMapped(void* host) override { return body_->FreeMapped(host); }
  Error MemoryInfo(size_t* free, size_t* total) override { return body_->MemoryInfo(free, total); }
  Error RangeGranularity(size_t* n) override { return body_->RangeGranularity(n); }
  Error ReserveRange(size_t n, void** range) override { return body_->ReserveRange(n, range); }
  Error MapRange(void* range, size_t offset, size_t n) override {
    return body_->MapRange(range, offset, n);
  }
  Error FreeRange(void* range) override { return body_->FreeRange(range); }
  Error CreateStream(StreamId* s) override { return body_->CreateStream(s); }
  void* NativeStream(StreamId s) override { return body_->NativeStream(s); }
  Error CreateEvent(EventId* e) override { return body_->CreateEvent(e); }
  Error CreateTimedEvent(EventId* e) override { return body_->CreateTimedEvent(e); }
  Error Elapsed(EventId from, EventId to, double* seconds) override {
    return body_->Elapsed(from, to, seconds);
  }
  Error DestroyEvent(EventId e) override { return body_->DestroyEvent(e); }
  Error Record(EventId e, StreamId s) override { return body_->Record(e, s); }
  Error Wait(StreamId s, EventId e) override { return body_->Wait(s, e); }
  Error Query(EventId e, bool* done) override { return body_->Query(e, done); }
  Error Synchronize(EventId e) override { return body_->Synchronize(e); }
  Error Synchronize(StreamId s) override { return body_->Synchronize(s); }
  Error Copy(StreamId s, void* to, const void* from, size_t n) override {
    return body_->Copy(s, to, from, n);
  }
  Error Fill(StreamId s, void* to, uint8_t byte, size_t n) override {
    return body_->Fill(s, to, byte, n);
  }
  Error Launch(StreamId s, const runtime::KernelHandle& kernel,
               const runtime::LaunchShape& shape) override {
    return body_->Launch(s, kernel, shape);
  }
  Error BeginCapture(StreamId s) override { return body_->BeginCapture(s); }
  Error EndCapture(StreamId s, GraphId* g) override { return body_->EndCapture(s, g); }
  Error LaunchGraph(GraphId g, StreamId s) override { return body_->LaunchGraph(g, s); }
  Error DestroyGraph(GraphId g) override { return body_->DestroyGraph(g); }

 protected:
  std::unique_ptr<runtime::Runtime> body_;  // set by whoever derives from this
};

}  // namespace quire::kernels::cuda::test
