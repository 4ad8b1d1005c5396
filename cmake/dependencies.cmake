# System libraries (Debian 12) and the Rust text bridge. Debian's gRPC and Protobuf come without CMake
# packages, so they are found by pkg-config and FindProtobuf.
find_package(Threads REQUIRED)
find_package(PkgConfig REQUIRED)
find_package(Protobuf REQUIRED)
find_package(OpenSSL REQUIRED)
find_package(absl REQUIRED)
find_package(yaml-cpp REQUIRED)
find_package(GTest REQUIRED)
find_package(fmt REQUIRED)
pkg_check_modules(GRPCPP REQUIRED IMPORTED_TARGET grpc++)
pkg_check_modules(XXHASH REQUIRED IMPORTED_TARGET libxxhash)
pkg_check_modules(NGHTTP2 REQUIRED IMPORTED_TARGET libnghttp2)
pkg_check_modules(LIBEDIT REQUIRED IMPORTED_TARGET libedit)

add_library(xxhash INTERFACE)
target_link_libraries(xxhash INTERFACE PkgConfig::XXHASH)
add_library(nghttp2 INTERFACE)
target_link_libraries(nghttp2 INTERFACE PkgConfig::NGHTTP2)

add_library(boost_json INTERFACE)
target_link_libraries(boost_json INTERFACE boost_json.so)
target_link_options(boost_json INTERFACE)

# Asio and Beast are headers only; the definitions keep every file on one configuration.
add_library(boost_asio INTERFACE)
target_compile_definitions(boost_asio INTERFACE BOOST_ASIO_NO_DEPRECATED)
target_link_libraries(boost_asio INTERFACE Threads::Threads)

add_library(spdlog INTERFACE)
target_compile_definitions(spdlog INTERFACE SPDLOG_COMPILED_LIB SPDLOG_SHARED_LIB SPDLOG_FMT_EXTERNAL)
target_link_libraries(spdlog INTERFACE libspdlog.so)
add_library(fmt INTERFACE)
target_link_libraries(fmt INTERFACE fmt::fmt)
add_library(prometheus-cpp-core INTERFACE)
target_link_libraries(prometheus-cpp-core INTERFACE libprometheus-cpp-core.so)
add_library(yaml_cpp_interface INTERFACE)

# The Rust bridge: one static library behind common/text/bridge/quire_text_bridge.h.
find_program(QUIRE_CARGO cargo REQUIRED)
set(QUIRE_BRIDGE_DIR ${CMAKE_SOURCE_DIR}/common/text/bridge)
set(QUIRE_BRIDGE_TARGET ${CMAKE_SOURCE_DIR}/.cache/cargo-target CACHE PATH "Where cargo builds the text bridge")
set(QUIRE_BRIDGE_LIB ${QUIRE_BRIDGE_TARGET}/release/libquire_text_bridge.a)
set(QUIRE_BRIDGE_OPTIONS)
set(QUIRE_BRIDGE_FLAGS)
if(QUIRE_FUZZ)
  # What libFuzzer sees of Rust: its edges and comparisons. With --target, what runs while building goes without.
  set(QUIRE_BRIDGE_TARGET ${CMAKE_SOURCE_DIR}/.cache/cargo-fuzz)
  set(QUIRE_BRIDGE_HOST ${CMAKE_SYSTEM_PROCESSOR}-unknown-linux-gnu)
  set(QUIRE_BRIDGE_OPTIONS --target ${QUIRE_BRIDGE_HOST})
  set(QUIRE_BRIDGE_LIB ${QUIRE_BRIDGE_TARGET}/${QUIRE_BRIDGE_HOST}/release/libquire_text_bridge.a)
  set(QUIRE_BRIDGE_FLAGS "RUSTFLAGS=-Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=3\
 -Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table\
 -Cllvm-args=-sanitizer-coverage-trace-compares -Coverflow-checks=on")
endif()
file(GLOB QUIRE_BRIDGE_SOURCES CONFIGURE_DEPENDS ${QUIRE_BRIDGE_DIR}/src/*.rs)
if(EXISTS ${QUIRE_BRIDGE_DIR}/Cargo.toml)
  add_custom_command(
    OUTPUT ${QUIRE_BRIDGE_LIB}
    COMMAND ${CMAKE_COMMAND} -E env CARGO_TARGET_DIR=${QUIRE_BRIDGE_TARGET} ${QUIRE_BRIDGE_FLAGS}
            ${QUIRE_CARGO} build --release --locked --quiet ${QUIRE_BRIDGE_OPTIONS}
    WORKING_DIRECTORY ${QUIRE_BRIDGE_DIR}
    DEPENDS ${QUIRE_BRIDGE_SOURCES} ${QUIRE_BRIDGE_DIR}/Cargo.toml ${QUIRE_BRIDGE_DIR}/Cargo.lock
    COMMENT "Building the text bridge (Rust)"
    VERBATIM)
  add_custom_target(quire_text_bridge_build DEPENDS ${QUIRE_BRIDGE_LIB})
  add_library(quire_text_bridge INTERFACE)
  add_dependencies(quire_text_bridge quire_text_bridge_build)
  target_link_libraries(quire_text_bridge INTERFACE ${QUIRE_BRIDGE_LIB} Threads::Threads ${CMAKE_DL_LIBS} m)
else()
  add_library(quire_text_bridge INTERFACE)
endif()
