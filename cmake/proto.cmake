# Generated protobuf and gRPC code is one library, compiled without our warnings.
find_program(QUIRE_GRPC_PLUGIN grpc_cpp_plugin REQUIRED)
set(QUIRE_PROTO_OUT ${CMAKE_BINARY_DIR}/generated)
file(MAKE_DIRECTORY ${QUIRE_PROTO_OUT})
file(GLOB_RECURSE QUIRE_PROTOS CONFIGURE_DEPENDS RELATIVE ${CMAKE_SOURCE_DIR}/proto ${CMAKE_SOURCE_DIR}/proto/*.proto)
set(QUIRE_PROTO_SOURCES)
foreach(proto ${QUIRE_PROTOS})
  string(REGEX REPLACE "\\.proto$" "" stem ${proto})
  set(outputs ${QUIRE_PROTO_OUT}/${stem}.pb.cc ${QUIRE_PROTO_OUT}/${stem}.pb.h
              ${QUIRE_PROTO_OUT}/${stem}.grpc.pb.cc ${QUIRE_PROTO_OUT}/${stem}.grpc.pb.h)
  add_custom_command(
    OUTPUT ${outputs}
    COMMAND protobuf::protoc -I ${CMAKE_SOURCE_DIR}/proto --cpp_out=${QUIRE_PROTO_OUT}
            --grpc_out=${QUIRE_PROTO_OUT} --plugin=protoc-gen-grpc=${QUIRE_GRPC_PLUGIN} ${proto}
    DEPENDS ${CMAKE_SOURCE_DIR}/proto/${proto}
    COMMENT "Generating ${proto}")
  list(APPEND QUIRE_PROTO_SOURCES ${QUIRE_PROTO_OUT}/${stem}.pb.cc ${QUIRE_PROTO_OUT}/${stem}.grpc.pb.cc)
endforeach()
if(QUIRE_PLAIN_BUILD)
  add_library(quire_proto STATIC IMPORTED GLOBAL)
  set_target_properties(quire_proto PROPERTIES IMPORTED_LOCATION ${QUIRE_PLAIN_BUILD}/libquire_proto.a)
  target_include_directories(quire_proto SYSTEM INTERFACE ${QUIRE_PLAIN_BUILD}/generated)
  target_link_libraries(quire_proto INTERFACE PkgConfig::GRPCPP protobuf::libprotobuf)
elseif(QUIRE_PROTO_SOURCES)
  add_library(quire_proto STATIC ${QUIRE_PROTO_SOURCES})
  target_compile_options(quire_proto PRIVATE -w)
  set_target_properties(quire_proto PROPERTIES POSITION_INDEPENDENT_CODE ON)  # libquire.so holds it
  if(QUIRE_ASAN)
    target_compile_options(quire_proto PRIVATE -fno-sanitize=all)
  endif()
  if(QUIRE_TSAN)
    target_include_directories(quire_proto PUBLIC ${CMAKE_SOURCE_DIR}/tests/sanitizers/include)
  endif()
  target_include_directories(quire_proto SYSTEM PUBLIC ${QUIRE_PROTO_OUT})
  target_link_libraries(quire_proto PUBLIC PkgConfig::GRPCPP protobuf::libprotobuf)
else()
  add_library(quire_proto INTERFACE)
endif()
