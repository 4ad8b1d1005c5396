// The name that somebody who mistyped another one may have meant.
//
// Pure functions, any thread.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace quire {

// The candidate with the fewest insertions, deletions, replacements and swaps of neighbours from
// `name` (optimal string alignment distance), the first on a tie; empty when all are further than a
// third of the name (at least 2). Takes time in proportion to the sum of the candidates' bytes
// times those of the name, which has at most 128: longer ones are no typing errors.
std::string NearestMatch(std::string_view name, const std::vector<std::string>& candidates);

}  // namespace quire
