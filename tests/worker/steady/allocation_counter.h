// Counts calls of operator new, which this test binary replaces.
//
// A count says nothing of who allocated: with QUIRE_SHOW_ALLOCATIONS set the first few of a count
// print where they came from.
#pragma once

#include <cstdint>
#include <functional>

namespace quire::test {

// Calls of operator new on any thread that is not exempt while `work` runs.
int64_t CountAllocations(const std::function<void()>& work);
// The bytes that they ask for.
int64_t CountAllocatedBytes(const std::function<void()>& work);

// While one lives, its thread's calls are not counted: a fake's arithmetic, the taker of outputs.
class ExemptScope {
 public:
  ExemptScope();
  ~ExemptScope();
  ExemptScope(const ExemptScope&) = delete;
  ExemptScope& operator=(const ExemptScope&) = delete;

 private:
  bool before_;
};

}  // namespace quire::test
