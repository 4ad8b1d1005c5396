// What a test tells the library that stands in for cuBLASLt, and what it has counted.
#pragma once

#include <cstdint>

namespace quire::kernels::cuda::test {

struct FakeCublasLtOrders {
  int create_code = 0;
  int heuristic_code = 0;
  int algorithms = 3;        // that it knows for every product
  int fails_below_rows = 0;  // products of fewer rows are not supported by any of them
};

struct FakeCublasLtCounts {
  int heuristics = 0;  // asked for
  int products = 0;    // queued
  int open = 0;        // descriptors, layouts, preferences and handles that were not destroyed
};

}  // namespace quire::kernels::cuda::test

extern "C" {
// Of the process's one library; counts begin anew.
void fake_cublaslt_set(const quire::kernels::cuda::test::FakeCublasLtOrders* orders);
void fake_cublaslt_read(quire::kernels::cuda::test::FakeCublasLtCounts* counts);
}
