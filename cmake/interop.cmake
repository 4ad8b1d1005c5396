# gRPC's interoperability tests: a server on common/grpc for the clients of others, and the router's caller for their servers.
set(QUIRE_INTEROP_OUT ${CMAKE_BINARY_DIR}/interop)
set(QUIRE_INTEROP_SOURCES)
file(MAKE_DIRECTORY ${QUIRE_INTEROP_OUT})
foreach(stem grpc_interop/testing grpc_interop/load_report)
  add_custom_command(
    OUTPUT ${QUIRE_INTEROP_OUT}/${stem}.pb.cc ${QUIRE_INTEROP_OUT}/${stem}.pb.h
    COMMAND protobuf::protoc -I ${CMAKE_SOURCE_DIR}/tests/conformance --cpp_out=${QUIRE_INTEROP_OUT} ${stem}.proto
    DEPENDS ${CMAKE_SOURCE_DIR}/tests/conformance/${stem}.proto
    COMMENT "Generating ${stem}.proto")
  list(APPEND QUIRE_INTEROP_SOURCES ${QUIRE_INTEROP_OUT}/${stem}.pb.cc)
endforeach()
add_library(quire_interop_proto STATIC EXCLUDE_FROM_ALL ${QUIRE_INTEROP_SOURCES})
target_compile_options(quire_interop_proto PRIVATE -w)
target_include_directories(quire_interop_proto SYSTEM PUBLIC ${QUIRE_INTEROP_OUT})
target_link_libraries(quire_interop_proto PUBLIC protobuf::libprotobuf)

quire_program(grpc_interop_server tests/conformance/grpc_interop/server_main.cc
              DEPS common/grpc common/tls common/config common/json)
target_sources(grpc_interop_server PRIVATE ${CMAKE_SOURCE_DIR}/tests/conformance/grpc_interop/test_service.cc)
target_link_libraries(grpc_interop_server PRIVATE quire_interop_proto)

quire_program(grpc_interop_caller tests/conformance/grpc_interop/caller_main.cc DEPS router/link common/config)
target_link_libraries(grpc_interop_caller PRIVATE quire_interop_proto)
