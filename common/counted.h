// Counts since the start and the metrics that show them, declared together: each struct of counts
// has a list of them beside it, from which sums and metrics derive.
//
// Plain values; any thread.
#pragma once

#include <cstddef>
#include <cstdint>

namespace quire {

template <class Totals>
struct Counted {
  uint64_t Totals::*count;
  const char* name;
  const char* help;
  bool micros = false;  // shown in seconds
};

// Adds up the counts of the list; the other members keep the values of `a`.
template <class Totals, size_t n>
Totals Sum(Totals a, const Totals& b, const Counted<Totals> (&list)[n]) {
  for (const Counted<Totals>& counted : list) a.*counted.count += b.*counted.count;
  return a;
}

}  // namespace quire
