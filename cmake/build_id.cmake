# What kernels are built from, as one number: the plugin for GPUs and the worker that opens it must agree on it.
# Run as a script (cmake -P) this writes the header.
if(CMAKE_SCRIPT_MODE_FILE)
  file(GLOB_RECURSE files RELATIVE ${ROOT} ${ROOT}/kernels/*.h ${ROOT}/kernels/*.cc ${ROOT}/kernels/*.cu)
  list(SORT files)
  set(all "")
  foreach(file ${files})
    file(SHA256 ${ROOT}/${file} digest)
    string(APPEND all "${file} ${digest}\n")
  endforeach()
  string(SHA256 id "${all}")
  set(text "// Written by cmake/build_id.cmake.\n#pragma once\n\ninline constexpr char kQuireBuildId[] =\n    \"${id}\";\n")
  set(before "")
  if(EXISTS ${OUT})
    file(READ ${OUT} before)
  endif()
  if(NOT before STREQUAL text)
    file(WRITE ${OUT} "${text}")
  endif()
  return()
endif()

file(GLOB_RECURSE QUIRE_BUILD_ID_FILES CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/kernels/*.h ${CMAKE_SOURCE_DIR}/kernels/*.cc
     ${CMAKE_SOURCE_DIR}/kernels/*.cu)
set(QUIRE_BUILD_ID_HEADER ${CMAKE_BINARY_DIR}/generated/build_id/quire_build_id.h)
add_custom_command(
  OUTPUT ${QUIRE_BUILD_ID_HEADER}
  COMMAND ${CMAKE_COMMAND} -DROOT=${CMAKE_SOURCE_DIR} -DOUT=${QUIRE_BUILD_ID_HEADER} -P
          ${CMAKE_SOURCE_DIR}/cmake/build_id.cmake
  DEPENDS ${QUIRE_BUILD_ID_FILES} ${CMAKE_SOURCE_DIR}/cmake/build_id.cmake
  COMMENT "Build id of the kernels" VERBATIM)
add_custom_target(quire_build_id DEPENDS ${QUIRE_BUILD_ID_HEADER})

# quire_uses_build_id(target source): that source of the target may include "quire_build_id.h".
function(quire_uses_build_id target source)
  add_dependencies(${target} quire_build_id)
  set_source_files_properties(${source} TARGET_DIRECTORY ${target} PROPERTIES
    INCLUDE_DIRECTORIES ${CMAKE_BINARY_DIR}/generated/build_id OBJECT_DEPENDS ${QUIRE_BUILD_ID_HEADER})
endfunction()
