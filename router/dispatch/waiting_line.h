// Requests that wait for a worker, by pool: resumed ones before new ones, the oldest first.
//
// Owner: the dispatcher. Pure values; bounded by the requests that are live.
//  1. A request waits in one line at most.
//  2. While a pool is blocked (a request in it was turned away for lack of room) a new request of
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
  // Resumed requests among those that found no room.
  bool CarryOnsBlocked(const std::string& pool) const;
  void SetCarryOnsBlocked(const std::string& pool, bool blocked);
  bool empty() const { return pools_.empty(); }
  size_t size() const;

  // Copies, since the caller places requests while it walks them, and placed requests leave the
  // line.
  std::vector<std::string> Pools() const;
  std::vector<RequestNumber> CarryOns(const std::string& pool) const;
  std::vector<RequestNumber> Fresh(const std::string& pool) const;

 private:
  std::map<std::string, Pool> pools_;  // by model_id; none is empty
};

}  // namespace quire
