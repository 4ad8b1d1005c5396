// Fuzzes the reader of multipart/form-data: the first line is the Content-Type, the rest the body.
// What it accepts, written again, has the same parts.
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "router/batches/multipart.h"

namespace {

using quire::batches::FormPart;

std::string Quoted(const std::string& text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') out += '\\';
    out += c;
  }
  return out + "\"";
}

std::string Written(const std::vector<FormPart>& parts, const std::string& boundary) {
  std::string out;
  for (const FormPart& part : parts) {
    out += "--" + boundary + "\r\nContent-Disposition: form-data; name=" + Quoted(part.name);
    if (part.is_file) out += "; filename=" + Quoted(part.filename);
    out += "\r\n\r\n" + std::string(part.data) + "\r\n";
  }
  return out + "--" + boundary + "--\r\n";
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  const size_t end = input.find('\n');
  if (end == std::string_view::npos) return 0;
  const auto boundary = quire::batches::BoundaryOf(input.substr(0, end));
  if (!boundary.ok()) return 0;
  const auto parts = quire::batches::ReadForm(input.substr(end + 1), *boundary);
  if (!parts.ok()) return 0;
  for (const FormPart& part : *parts) {
    // Its names must fit once more beside the words that are written around them.
    if (2 * (part.name.size() + part.filename.size()) + 128 > quire::batches::kMaxPartHeaderBytes) {
      return 0;
    }
  }
  const std::string text = Written(*parts, *boundary);
  const auto again = quire::batches::ReadForm(text, *boundary);
  if (!again.ok() || again->size() != parts->size()) std::abort();
  for (size_t i = 0; i < parts->size(); ++i) {
    const FormPart &a = (*parts)[i], &b = (*again)[i];
    if (a.name != b.name || a.filename != b.filename || a.is_file != b.is_file ||
        a.data != b.data) {
      std::abort();
    }
  }
  return 0;
}
