// Under ThreadSanitizer, protobuf's maps have two more members than in Debian's library, which is
// not instrumented: the first map that the library takes down would end the program. This header
// stands before the system's and gives both the same layout.
//
// Of no owner and no thread: it declares nothing.
#pragma once

#include <cstddef>  // the standard library has seen the sanitizer before it is hidden

#pragma push_macro("__SANITIZE_THREAD__")
#undef __SANITIZE_THREAD__
#include_next <google/protobuf/map_field.h>
#pragma pop_macro("__SANITIZE_THREAD__")
