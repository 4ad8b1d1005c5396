// The records of the last requests, so that an operator can look up what happened to one.
//
// Owner: main; the router's executor. Sits in front of the request log and passes every record on.
//
// Invariants:
// 1. At most kMaxRecentRequests are kept; the oldest is dropped first.
// 2. A record holds no prompt and no output.
#pragma once

#include <deque>
#include <string_view>

#include "router/records/request_record.h"

namespace quire {

inline constexpr size_t kMaxRecentRequests = 512;

class RecentRequests final : public RecordSink {
 public:
  struct Entry {
    RequestRecord record;
    int64_t ended_unix_seconds = 0;
  };

  // `next` may be absent; both outlive this object.
  RecentRequests(const Clock& clock, RecordSink* next) : clock_(clock), next_(next) {}
  void Write(const RequestRecord& record) override;

  // The latest record with that x-request-id; nullptr when none is kept.
  const Entry* Find(std::string_view request_id) const;
  const std::deque<Entry>& entries() const { return entries_; }  // oldest first

 private:
  const Clock& clock_;
  RecordSink* const next_;
  std::deque<Entry> entries_;
};

}  // namespace quire
