// The router's page: chat, and the fleet live. Files of router/page, embedded at build.
//
// Any thread; pure. The files are open to everyone and contain nothing of this fleet: the page gets
// its data from routes that check credentials.
#pragma once

#include <string_view>

#include "router/http/exchange.h"

namespace quire {

std::string_view Embedded_index_html();
std::string_view Embedded_page_css();
std::string_view Embedded_page_js();
std::string_view Embedded_chat_js();
std::string_view Embedded_markdown_js();

// The file at "/", "/page.css", "/page.js", "/chat.js" or "/markdown.js", with headers that isolate
// the page from other sites.
HttpResponse PageFile(std::string_view path);

}  // namespace quire
