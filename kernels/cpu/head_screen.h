// Finds the largest logit of a row without all of the head's products.
//
// An int8 copy of the head gives every logit within a bound. The rows of the head that may hold the
// largest logit are then multiplied as ever, so the chosen token is the one that the whole product
// gives, bit for bit.
//
// The bound: row v of the head and a row x of activations are cut into what their codes mean and
// what those lose, w = ŵ + δw and x = x̂ + δx. Then |w · x − ŵ · x̂| ≤ |w| |δx| + |δw| |x̂| (Cauchy
// and Schwarz). The sums of both products also round: by no more than a share of |w| |x| that grows
// with K (Higham, Accuracy and Stability of Numerical Algorithms, chapter 3).
//
// Owned by the loaded program. Pack and Finish write; everything else reads, on any thread.
#pragma once

#include <cstdint>
#include <vector>

#include "kernels/cpu/packed_matrix.h"

namespace quire::kernels::cpu {

// What a row of activations adds to its bounds: |logit − approximation| of row v of the head is at
// most weight_norms[v] · of_weights + error_norms[v] · of_errors + least.
struct ScreenBound {
  double of_weights = 0;
  double of_errors = 0;
};

// What a thread needs to look for units; reserved once.
struct ScreenScratch {
  std::vector<float> largest;
  std::vector<int32_t> units;
};

class HeadScreen {
 public:
  // Whether it pays: many rows of one floating-point type, in whole blocks of K.
  static bool Suits(const Weight& head);
  static int64_t Bytes(const Weight& head);

  HeadScreen() = default;
  explicit HeadScreen(const Weight& head);

  bool present() const { return copy_.rows > 0; }
  // The int8 copy, as the int8 class multiplies it. Its panels hold the rows of the head's panels.
  const PackedMatrix& copy() const { return copy_; }
  int64_t bytes() const;

  // The head's rows of a panel, floats of `type`. Panels may be packed by different threads.
  void Pack(DType type, const PanelRows& rows, int panel);
  // After all panels: false when a weight is not finite, for then there are no bounds.
  bool Finish();

  void Reserve(ScreenScratch& scratch) const;
  // `x`: [k], quantised by the rule of int8_form.h. Not finite when a value of x is not.
  ScreenBound BoundOf(const float* x) const;
  // The row of the head with the largest of the approximate logits `rough` [rows of the head]; −1:
  // some are no numbers. Its unit is to be multiplied next.
  int64_t FindLeader(const float* rough, ScreenScratch& scratch) const;
  // After FindLeader, with the exact logits of the leader's unit in `rough`: leaves in
  // scratch.units the other units (LinearUnits) whose rows may hold the largest logit, in order.
  // False when there are more than MostUnits or the bounds say nothing: then the whole product is
  // needed.
  bool FindUnits(const float* rough, int64_t leader, const ScreenBound& bound,
                 ScreenScratch& scratch) const;
  int32_t UnitOf(int64_t row) const;
  // Of `best` and the rows of a unit, all with exact logits: the row with the largest one, and the
  // first such row.
  int64_t BestOfUnit(const float* exact, int32_t unit, int64_t best) const;
  size_t MostUnits() const;

 private:
  PackedMatrix copy_;
  std::vector<float> weight_norms_;  // |w| of each row of the head, rounded up
  std::vector<float> error_norms_;   // |δw|
  double most_weight_norm_ = 0;
  double most_error_norm_ = 0;
};

}  // namespace quire::kernels::cpu
