// The metrics of a struct of counts.
//
// Owner: the code that shows the counts, on one thread; the counters are read on any.
#pragma once

#include <algorithm>
#include <span>
#include <vector>

#include "common/check.h"
#include "common/counted.h"
#include "common/metrics/metrics.h"

namespace quire {

template <class Totals>
class CountedSeries {
 public:
  // Adds a counter for each count of the list, which outlives this object, as `metrics` does.
  template <size_t n>
  CountedSeries(Metrics& metrics, const Counted<Totals> (&list)[n]) : list_(list) {
    for (const Counted<Totals>& counted : list) {
      counters_.push_back(counted.micros ? &metrics.AddSecondsCounter({counted.name, counted.help})
                                         : &metrics.AddCounter({counted.name, counted.help}));
    }
  }

  // Raises the counters to the totals, which never go down.
  void Raise(const Totals& totals) {
    for (size_t i = 0; i < list_.size(); ++i) {
      const uint64_t now = totals.*list_[i].count, last = last_.*list_[i].count;
      QUIRE_CHECK_MSG(now >= last, "a total went down");
      counters_[i]->Add(now - last);
    }
    last_ = totals;
  }
  // Requires: the list has the count.
  const Counter& Of(uint64_t Totals::*count) const {
    const auto found = std::find_if(list_.begin(), list_.end(),
                                    [=](const auto& counted) { return counted.count == count; });
    QUIRE_CHECK(found != list_.end());
    return *counters_[static_cast<size_t>(found - list_.begin())];
  }

 private:
  std::span<const Counted<Totals>> list_;
  std::vector<Counter*> counters_;
  Totals last_;
};

}  // namespace quire
