// Several programs' metrics as one text, as if one program had them all.
#pragma once

#include <span>
#include <string>

namespace quire {

struct MetricsPart {
  std::string engine;  // the value of the label `engine` that its series get; empty: they stay
  std::string text;    // the text exposition format, as Metrics::Render writes it
};

// Families in the order in which they first come, each once and complete; HELP and TYPE come from
// the first part that has them. A label `engine` that a series already has is replaced. Invalid
// lines are left out.
std::string MergeMetrics(std::span<const MetricsPart> parts);

}  // namespace quire
