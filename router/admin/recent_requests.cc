#include "router/admin/recent_requests.h"

#include <algorithm>

namespace quire {

void RecentRequests::Write(const RequestRecord& record) {
  if (entries_.size() >= kMaxRecentRequests) entries_.pop_front();
  entries_.push_back({record, clock_.UnixSeconds()});
  if (next_ != nullptr) next_->Write(record);
}

const RecentRequests::Entry* RecentRequests::Find(std::string_view request_id) const {
  const auto found = std::find_if(entries_.rbegin(), entries_.rend(), [&](const Entry& entry) {
    return entry.record.request_id == request_id;
  });
  return found == entries_.rend() ? nullptr : &*found;
}

}  // namespace quire
