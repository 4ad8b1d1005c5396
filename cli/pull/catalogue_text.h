// The catalogue that the program carries: models/catalogue.json, embedded by the build.
#pragma once

#include <string_view>

namespace quire {

std::string_view Embedded_catalogue_json();

}  // namespace quire
