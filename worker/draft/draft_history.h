// How well a row's drafts have been accepted, and how many it is worth to draft next.
//
// Pure. The chance that a draft equals the sample is estimated from the row's recent drafts. A
// further draft pays when it is expected to bring more tokens for the time that it adds than the
// step brings without it. So a full batch drafts nothing, and a row alone drafts while most of a
// step's time goes into reading the weights.
#pragma once

#include <cstdint>

namespace quire {

// A row for which drafting has not paid tries one draft after so many tokens without any.
inline constexpr int64_t kDraftProbeTokens = 32;

class DraftHistory {
 public:
  // Nothing of the row has been verified: it begins with the chance that others had.
  void Begin(double chance) {
    right_ = chance;
    tried_ = 1;
  }
  // Of `drafted` drafts that a step has verified, the first `accepted` were right; the row has
  // `length` tokens since.
  void Add(int64_t drafted, int64_t accepted, int64_t length);
  // The chance that the next draft is right, if those before it are.
  double Chance() const { return right_ / tried_; }
  // Tokens of the row since it was drafted for.
  int64_t Since(int64_t length) const { return length - last_length_; }
  bool ProbeDue(int64_t length) const { return Since(length) >= kDraftProbeTokens; }

 private:
  static constexpr double kFade = 0.75;  // of what is known, with each step

  // Before the first: a row begins with as many drafts as are configured, where there is time.
  double right_ = 0.9;
  double tried_ = 1;
  int64_t last_length_ = 0;
};

// How often the first drafts of rows have been right lately: where a row begins. Never below
// kLeast, at which a row alone still tries a draft.
class DraftStart {
 public:
  double Chance() const;
  // Of a row's first drafts, as for DraftHistory::Add.
  void Add(int64_t drafted, int64_t accepted);

 private:
  static constexpr double kFade = 0.9;  // of what is known, with each row
  static constexpr double kLeast = 0.5;

  double right_ = 4.5;
  double tried_ = 5;
};

// The step as it would be without the row's drafts.
struct DraftStep {
  double micros = 0;  // its time, drafting included
  double tokens = 0;  // that it is expected to bring
};

// How many drafts pay, at most `most`, and adds them to the step. `micros`: the time that each
// adds.
int32_t WorthDrafting(double chance, double micros, int32_t most, DraftStep& step);

}  // namespace quire
