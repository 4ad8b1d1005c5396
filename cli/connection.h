// The client's connections under the command line's own names.
#pragma once

#include "common/client/connection.h"

namespace quire::cli {

using client::Connection;
using client::ParseUrl;
using client::Url;

}  // namespace quire::cli
