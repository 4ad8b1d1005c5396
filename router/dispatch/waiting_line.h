// Who waits for a worker, by pool: carry-ons before new requests, the oldest first.
//
// Owner: the dispatcher. Pure values; bounded by the requests that are live.
//  1. A request waits in one line at most.
//  2. While a pool is blocked (somebody in it was turned away for want of room) a new request of
//     that pool joins the line instead of passing it.
#pragma once

#include <map>
#include <set>
#include <string>
#include <vector>

#include "common/ids.h"

namespace quire {

class WaitingLine {
 public:
  struct Pool {
    std::set<RequestNumber> carry_ons;
    std::set<RequestNumber> fresh;
    bool blocked = false;
    bool carry_ons_blocked = false;
  };

  void Add(const std::string& pool, RequestNumber request, bool carry_on);
  void Remove(const std::string& pool, RequestNumber request);
  bool Contains(const std::string& pool, RequestNumber request) const;
  bool Blocked(const std::string& pool) const;
  void SetBlocked(const std::string& pool, bool blocked);
  // Carry-ons among those that found no room.
  bool CarryOnsBlocked(const std::string& pool) const;
  void SetCarryOnsBlocked(const std::string& pool, bool blocked);
  bool empty() const { return pools_.empty(); }
  size_t size() const;

  // Copies, since whoever walks them places requests, which leave the line.
  std::vector<std::string> Pools() const;
  std::vector<RequestNumber> CarryOns(const std::string& pool) const;
  std::vector<RequestNumber> Fresh(const std::string& pool) const;

 private:
  std::map<std::string, Pool> pools_;  // by model_id; none is empty
};

}  // namespace quire
