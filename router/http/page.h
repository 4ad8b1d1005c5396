// The router's page: chat, and the fleet live. Files of router/page, embedded at build.
//
// Any thread; pure. They are open to everyone and hold nothing of this fleet: what the page shows
// comes from routes that ask who is there.
#pragma once

#include <string_view>

#include "router/http/exchange.h"

namespace quire {

std::string_view Embedded_index_html();
std::string_view Embedded_page_css();
std::string_view Embedded_page_js();

// The file at "/", "/page.css" or "/page.js", with the headers that keep the page to itself.
HttpResponse PageFile(std::string_view path);

}  // namespace quire
