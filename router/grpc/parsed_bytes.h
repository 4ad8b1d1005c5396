// The memory that a message needs once it is parsed, computed from its bytes before that.
//
// Pure; any thread.
#pragma once

#include <google/protobuf/message.h>

#include <cstddef>
#include <string_view>

namespace quire {

// An upper bound for a message of this type; for a malformed one, a bound for what is parsed before
// the fault shows. Protobuf makes objects of some hundred bytes from two.
size_t ParsedBytes(const google::protobuf::Descriptor& type, std::string_view bytes);

}  // namespace quire
