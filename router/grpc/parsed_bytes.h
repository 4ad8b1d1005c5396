// What a message takes once it is parsed, told by its bytes before it is.
//
// Pure; any thread.
#pragma once

#include <google/protobuf/message.h>

#include <cstddef>
#include <string_view>

namespace quire {

// An upper bound for a message of this type; of one that is malformed, of what is read before that
// shows. Protobuf makes objects of some hundred bytes from two.
size_t ParsedBytes(const google::protobuf::Descriptor& type, std::string_view bytes);

}  // namespace quire
