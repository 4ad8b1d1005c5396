#include "router/batches/multipart.h"

#include <algorithm>
#include <utility>

#include "common/ascii.h"

namespace quire::batches {
namespace {

constexpr std::string_view kLineEnd = "\r\n";

bool IsBoundaryByte(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
         std::string_view("'()+_,-./:=?").find(c) != std::string_view::npos;
}

// The next "; name=value" of a header, quoted or not, taken off `rest`. False: it is malformed.
bool TakeParameter(std::string_view& rest, std::string_view& name, std::string& value) {
  rest = Trim(rest);
  if (!rest.starts_with(';')) return false;
  rest = Trim(rest.substr(1));
  const size_t equals = rest.find('=');
  if (equals == std::string_view::npos) return false;
  name = Trim(rest.substr(0, equals));
  rest.remove_prefix(equals + 1);
  value.clear();
  if (!rest.starts_with('"')) {
    const std::string_view word = rest.substr(0, rest.find(';'));
    rest.remove_prefix(word.size());
    value = Trim(word);
    return !name.empty() && value.find('"') == std::string::npos;
  }
  rest.remove_prefix(1);
  while (!rest.empty() && rest.front() != '"') {
    if (rest.front() == '\\' && rest.size() > 1 && (rest[1] == '"' || rest[1] == '\\')) {
      rest.remove_prefix(1);
    }
    value += rest.front();
    rest.remove_prefix(1);
  }
  if (rest.empty()) return false;
  rest.remove_prefix(1);
  return !name.empty();
}

absl::Status WrongPart(size_t number, std::string_view why) {
  return InvalidArgument("the form's part " + std::to_string(number) + " " + std::string(why));
}

bool HasControls(std::string_view text) {
  return std::any_of(text.begin(), text.end(), [](char c) {
    const auto byte = static_cast<unsigned char>(c);
    return byte < 0x20 || byte == 0x7F;
  });
}

absl::Status ReadDisposition(std::string_view value, size_t number, FormPart& part) {
  const std::string_view kind = value.substr(0, value.find(';'));
  if (!EqualsIgnoringCase(Trim(kind), "form-data")) {
    return WrongPart(number, "has a Content-Disposition that is not form-data");
  }
  std::string_view rest = value.substr(kind.size());
  std::string_view name;
  std::string text;
  bool is_named = false;
  while (!Trim(rest).empty()) {
    if (!TakeParameter(rest, name, text)) {
      return WrongPart(number, "has a Content-Disposition that cannot be read");
    }
    if (HasControls(text)) return WrongPart(number, "has control characters in its names");
    if (EqualsIgnoringCase(name, "name")) {
      if (std::exchange(is_named, true)) return WrongPart(number, "has two names");
      part.name = text;
    } else if (EqualsIgnoringCase(name, "filename")) {
      if (part.is_file && !part.filename.empty()) return WrongPart(number, "has two filenames");
      part.is_file = true;
      part.filename = text;
    } else if (EqualsIgnoringCase(name, "filename*") && part.filename.empty()) {
      part.is_file = true;
      part.filename = text;
    }
  }
  return is_named ? absl::OkStatus() : WrongPart(number, "has no name");
}

absl::Status ReadPartHeaders(std::string_view head, size_t number, FormPart& part) {
  bool has_disposition = false;
  while (!head.empty()) {
    const size_t end = std::min(head.find(kLineEnd), head.size());
    const std::string_view line = head.substr(0, end);
    head.remove_prefix(std::min(head.size(), end + kLineEnd.size()));
    const size_t colon = line.find(':');
    if (colon == std::string_view::npos || colon == 0 || line.front() == ' ' ||
        line.front() == '\t') {
      return WrongPart(number, "has a header without a name and a colon");
    }
    const std::string_view name = line.substr(0, colon);
    const std::string_view value = Trim(line.substr(colon + 1));
    if (EqualsIgnoringCase(name, "content-disposition")) {
      if (std::exchange(has_disposition, true)) {
        return WrongPart(number, "has two headers Content-Disposition");
      }
      QUIRE_RETURN_IF_ERROR(ReadDisposition(value, number, part));
    } else if (EqualsIgnoringCase(name, "content-transfer-encoding") &&
               !EqualsIgnoringCase(value, "binary") && !EqualsIgnoringCase(value, "8bit") &&
               !EqualsIgnoringCase(value, "7bit")) {
      return WrongPart(number, "has a Content-Transfer-Encoding; send it as it is");
    }
  }
  return has_disposition ? absl::OkStatus() : WrongPart(number, "has no Content-Disposition");
}

}  // namespace

absl::StatusOr<std::string> BoundaryOf(std::string_view content_type) {
  const std::string_view type = content_type.substr(0, content_type.find(';'));
  if (!EqualsIgnoringCase(Trim(type), "multipart/form-data")) {
    return InvalidArgument("Content-Type: must be multipart/form-data with a boundary");
  }
  std::string_view rest = content_type.substr(type.size());
  std::string_view name;
  std::string value, boundary;
  while (!Trim(rest).empty()) {
    if (!TakeParameter(rest, name, value)) {
      return InvalidArgument("Content-Type: its parameters cannot be read");
    }
    if (!EqualsIgnoringCase(name, "boundary")) continue;
    if (!boundary.empty()) return InvalidArgument("Content-Type: has two boundaries");
    boundary = value;
    if (boundary.empty()) break;
  }
  if (boundary.empty() || boundary.size() > kMaxBoundaryBytes ||
      !std::all_of(boundary.begin(), boundary.end(), IsBoundaryByte)) {
    return InvalidArgument(
        "Content-Type: multipart/form-data needs a boundary of 1 to 70 letters, digits and "
        "'()+_,-./:=?");
  }
  return boundary;
}

absl::StatusOr<std::vector<FormPart>> ReadForm(std::string_view body, std::string_view boundary) {
  // A boundary has no line end in it, so that two beginnings of a delimiter never overlap: the
  // search is linear.
  const std::string delimiter = "\r\n--" + std::string(boundary);
  const std::string_view first = std::string_view(delimiter).substr(kLineEnd.size());
  if (!body.starts_with(first)) {
    return InvalidArgument("the form does not begin with its boundary");
  }
  body.remove_prefix(first.size());
  std::vector<FormPart> parts;
  while (!body.starts_with("--")) {
    const size_t number = parts.size() + 1;
    if (number > kMaxParts) {
      return absl::ResourceExhaustedError(
          AbslView("the form has more than " + std::to_string(kMaxParts) + " parts"));
    }
    if (!body.starts_with(kLineEnd))
      return WrongPart(number, "must begin on the line after its boundary");
    body.remove_prefix(kLineEnd.size());
    const size_t head = body.substr(0, kMaxPartHeaderBytes).find("\r\n\r\n");
    if (head == std::string_view::npos) {
      if (body.size() < kMaxPartHeaderBytes) return WrongPart(number, "has no end of its headers");
      return absl::ResourceExhaustedError(AbslView("the form's part " + std::to_string(number) +
                                                   " has headers of more than " +
                                                   std::to_string(kMaxPartHeaderBytes) + " bytes"));
    }
    FormPart part;
    QUIRE_RETURN_IF_ERROR(ReadPartHeaders(body.substr(0, head), number, part));
    body.remove_prefix(head + 2);  // an empty part's delimiter begins with this line end
    const size_t end = body.find(delimiter);
    if (end == std::string_view::npos) return WrongPart(number, "has no end");
    part.data = end == 0 ? std::string_view() : body.substr(2, end - 2);
    body.remove_prefix(end + delimiter.size());
    parts.push_back(std::move(part));
  }
  body.remove_prefix(2);
  if (!body.empty() && body != kLineEnd) {
    return InvalidArgument("something follows the form's last boundary");
  }
  return parts;
}

}  // namespace quire::batches
