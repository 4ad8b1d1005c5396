#include "router/admin/recent_requests.h"

#include <algorithm>
#include <utility>

namespace quire {

void RecentRequests::Write(const RequestRecord& record) {
  Entry entry;
  if (entries_.size() >= kMaxRecentRequests) {
    entry = std::move(entries_.front());  // for its memory
    entries_.pop_front();
  }
  entry.record = record;
  entry.ended_unix_seconds = clock_.UnixSeconds();
  entries_.push_back(std::move(entry));
  if (next_ != nullptr) next_->Write(record);
}

const RecentRequests::Entry* RecentRequests::Find(std::string_view request_id) const {
  const auto found = std::find_if(entries_.rbegin(), entries_.rend(), [&](const Entry& entry) {
    return entry.record.request_id == request_id;
  });
  return found == entries_.rend() ? nullptr : &*found;
}

}  // namespace quire
