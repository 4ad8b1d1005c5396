#include "router/http/page.h"

namespace quire {

HttpResponse PageFile(std::string_view path) {
  HttpResponse response;
  response.content_type = "text/html; charset=utf-8";
  std::string_view file = Embedded_index_html();
  if (path == "/page.css") {
    response.content_type = "text/css; charset=utf-8";
    file = Embedded_page_css();
  } else if (path.ends_with(".js")) {
    response.content_type = "text/javascript; charset=utf-8";
    file = path == "/chat.js"       ? Embedded_chat_js()
           : path == "/markdown.js" ? Embedded_markdown_js()
                                    : Embedded_page_js();
  }
  // Nothing from elsewhere, nothing inline, and no other page around it: the output of a model
  // stays text.
  response.headers = {{"Content-Security-Policy",
                       "default-src 'none'; script-src 'self'; style-src 'self'; "
                       "connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; "
                       "frame-ancestors 'none'"},
                      {"X-Content-Type-Options", "nosniff"},
                      {"Referrer-Policy", "no-referrer"},
                      {"Cache-Control", "no-cache"}};
  response.body = std::string(file);
  return response;
}

}  // namespace quire
