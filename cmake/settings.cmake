# Language, warnings and the build kinds.
set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
if(NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE Release)
endif()
# Assertions of ours (QUIRE_CHECK) never depend on NDEBUG; -O2 keeps builds short on two cores.
set(CMAKE_CXX_FLAGS_RELEASE "-O2")
set(CMAKE_C_FLAGS_RELEASE "-O2")
add_compile_options(-Wall -Wextra -Werror -fno-strict-aliasing -fno-omit-frame-pointer)
# Bits must not depend on what the compiler fuses: a fused multiply-add is written as one.
add_compile_options(-ffp-contract=off)
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  # GCC 12 reports false positives of these inside the standard library and Boost at -O2.
  add_compile_options(-Wno-restrict -Wno-maybe-uninitialized -Wno-stringop-overflow -Wno-dangling-pointer
                      -Wno-array-bounds -Wno-stringop-overread -Wno-psabi)
  # Of sources that are compiled together (QUIRE_UNITY) it takes each but the first for a header.
  add_compile_options(-Wno-subobject-linkage)
endif()

option(QUIRE_ASAN "AddressSanitizer and UndefinedBehaviorSanitizer" OFF)
option(QUIRE_TSAN "ThreadSanitizer" OFF)
option(QUIRE_FUZZ "libFuzzer targets (clang)" OFF)
option(QUIRE_UNITY "Compile the sources of a folder together" ON)
option(QUIRE_PLANTED_BUGS "Compile the planted bugs that the simulation must find" OFF)
# What no sanitizer watches (generated code, the fast kernels) is the same as in a release build of this tree, and
# is taken from there.
set(QUIRE_PLAIN_BUILD "" CACHE PATH "With QUIRE_ASAN: the folder of that release build")
if(QUIRE_ASAN)
  # Nothing is optimised, and what AddressSanitizer or the compiler finds anyway is not checked a second time:
  # both are most of the time that this build takes.
  set(CMAKE_CXX_FLAGS_RELEASE "-O0")
  set(CMAKE_C_FLAGS_RELEASE "-O0")
  add_compile_options(-fsanitize=address,undefined -fno-sanitize-recover=undefined -g1
                      -fno-sanitize=null,object-size,vptr,return,pointer-overflow,nonnull-attribute,returns-nonnull-attribute)
  add_link_options(-fsanitize=address,undefined)
endif()
set(QUIRE_TEST_OPTIMISATION -O0)  # of files that only test
if(QUIRE_ASAN OR QUIRE_TSAN)
  set(QUIRE_SANITIZED ON)
endif()
if(QUIRE_TSAN)
  set(CMAKE_CXX_FLAGS_RELEASE "-O1")
  add_compile_options(-fsanitize=thread -g1)
  add_link_options(-fsanitize=thread)
  # Fences are what ThreadSanitizer does not follow; those of Asio stand beside its locks.
  add_compile_definitions(QUIRE_TSAN=1 BOOST_ASIO_DISABLE_FENCED_BLOCK=1)
endif()
if(QUIRE_FUZZ)
  add_compile_options(-fsanitize=fuzzer-no-link,address,undefined -g1)
  add_link_options(-fsanitize=address,undefined)
endif()
if(QUIRE_PLANTED_BUGS)
  add_compile_definitions(QUIRE_PLANTED_BUGS=1)
endif()

find_program(QUIRE_MOLD mold)
if(QUIRE_MOLD)
  add_link_options(-fuse-ld=mold)
endif()
find_program(QUIRE_CCACHE ccache)
if(QUIRE_CCACHE)
  # ccache needs the sloppiness to cache files that use a precompiled header. The base folder makes paths below it
  # relative, so that every checkout of the tree, wherever it lies, shares one cache.
  set(CMAKE_CXX_COMPILER_LAUNCHER ${CMAKE_COMMAND} -E env CCACHE_SLOPPINESS=pch_defines,time_macros
                                  CCACHE_BASEDIR=${CMAKE_SOURCE_DIR} CCACHE_NOHASHDIR=1 ${QUIRE_CCACHE})
  set(CMAKE_C_COMPILER_LAUNCHER ${CMAKE_COMMAND} -E env CCACHE_BASEDIR=${CMAKE_SOURCE_DIR} CCACHE_NOHASHDIR=1
                                ${QUIRE_CCACHE})
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    add_compile_options($<$<COMPILE_LANGUAGE:CXX>:-fpch-preprocess>)
  endif()
endif()
include_directories(${CMAKE_SOURCE_DIR})
add_compile_definitions(QUIRE_VERSION="${PROJECT_VERSION}")

# Headers that nearly every file includes, compiled once: a third of the build time of two cores. Libraries
# and tests differ by GoogleTest alone. clang (fuzzing, linting) goes without.
set(QUIRE_PCH_HEADERS <algorithm> <atomic> <cstdint> <deque> <functional> <map> <memory> <mutex> <optional>
    <set> <span> <string> <string_view> <unordered_map> <utility> <variant> <vector>
    <absl/status/status.h> <absl/status/statusor.h>)
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  set(QUIRE_USE_PCH ON)
endif()
