#include "router/front/seats.h"

#include <algorithm>
#include <utility>

#include "common/check.h"

namespace quire {

bool Seats::CountsByAddress(const ClientSeat& seat) const {
  if (seat.proxies != nullptr) return false;
  return options_.per_address > 0 || !seat.address.loopback();
}

bool Seats::Count(ClientSeat& seat) {
  const bool proxy = options_.proxies != nullptr && options_.proxies->Contains(seat.address);
  seat.proxies = proxy ? options_.proxies : nullptr;
  if (!CountsByAddress(seat)) return true;
  const size_t share = options_.per_address > 0
                           ? options_.per_address
                           : std::max<size_t>(1, options_.places / kShareOfOneAddress);
  size_t& count = by_address_[seat.address.Share()];
  if (count >= share) return false;
  ++count;
  return true;
}

void Seats::Uncount(const ClientSeat& seat) {
  if (!CountsByAddress(seat)) return;
  const auto found = by_address_.find(seat.address.Share());
  QUIRE_CHECK(found != by_address_.end() && found->second > 0);
  if (--found->second == 0) by_address_.erase(found);
}

Seats::Number Seats::Sit(const std::shared_ptr<ClientSeat>& seat, std::function<void()> close) {
  if (!Count(*seat)) return 0;
  const size_t staying = seated_.size() - leaving_ - for_probes_;
  if (staying >= options_.places && !CloseOldest(false)) {
    seat->probes_only = true;
    if (for_probes_ >= kProbePlaces) CloseOldest(true);
    ++for_probes_;
  }
  const Number number = ++last_;
  seated_.emplace(number, Seated{seat, std::move(close)});
  return number;
}

bool Seats::Name(Number number, const ClientAddress& client) {
  ClientSeat& seat = *seated_.at(number).seat;
  Uncount(seat);
  seat.address = client;
  if (Count(seat)) return true;
  seat.proxies = options_.proxies;  // no longer counted anywhere
  return false;
}

void Seats::Leave(Number number) {
  const auto found = seated_.find(number);
  QUIRE_CHECK(found != seated_.end());
  const ClientSeat& seat = *found->second.seat;
  Uncount(seat);
  if (found->second.close == nullptr) {
    --leaving_;
  } else if (seat.probes_only) {
    --for_probes_;
  }
  seated_.erase(found);
}

bool Seats::CloseOldest(bool probes_only) {
  for (auto& [number, seated] : seated_) {
    const ClientSeat& seat = *seated.seat;
    if (seated.close == nullptr || seat.probes_only != probes_only || seat.has_shown_key) continue;
    if (seat.at_work && seat.at_work()) continue;
    ++gave_way_;
    ++leaving_;
    if (probes_only) --for_probes_;
    std::exchange(seated.close, nullptr)();
    return true;
  }
  return false;
}

}  // namespace quire
