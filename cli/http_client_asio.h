// The HTTP client under the command line's own names.
#pragma once

#include "cli/connection.h"
#include "common/client/http_client_asio.h"

namespace quire::cli {

using client::Exchange;
using client::HttpAnswer;
using client::HttpRequest;
using client::kMaxAnswerBytes;

}  // namespace quire::cli
