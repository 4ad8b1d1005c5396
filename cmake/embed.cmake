# Files as C++: quire_embed(target header_name file...) makes one source of the target in which each file is an array
# of its bytes. Run as a script (cmake -P) this writes that source.
if(CMAKE_SCRIPT_MODE_FILE)
  set(text "// Written by cmake/embed.cmake: the bytes of files of the tree.\n#include \"${HEADER}\"\n\nnamespace quire {\n")
  foreach(file ${FILES})
    get_filename_component(name ${file} NAME)
    string(REGEX REPLACE "[^a-z0-9]" "_" name ${name})
    file(READ ${file} bytes HEX)
    string(REGEX REPLACE "([0-9a-f][0-9a-f])" "'\\\\x\\1'," bytes "${bytes}")
    string(APPEND text "namespace {\nconstexpr char k_${name}[] = {${bytes}'\\0'};\n}  // namespace\n"
           "std::string_view Embedded_${name}() { return {k_${name}, sizeof(k_${name}) - 1}; }\n")
  endforeach()
  file(WRITE ${OUT} "${text}}  // namespace quire\n")
  return()
endif()

function(quire_embed target header)
  set(out ${CMAKE_BINARY_DIR}/generated/${target}_embedded.cc)
  list(TRANSFORM ARGN PREPEND ${CMAKE_SOURCE_DIR}/)
  add_custom_command(
    OUTPUT ${out}
    COMMAND ${CMAKE_COMMAND} -DHEADER=${header} -DOUT=${out} "-DFILES=${ARGN}" -P ${CMAKE_SOURCE_DIR}/cmake/embed.cmake
    DEPENDS ${ARGN} ${CMAKE_SOURCE_DIR}/cmake/embed.cmake
    COMMENT "Embedding files of ${target}" VERBATIM)
  target_sources(${target} PRIVATE ${out})
  set_source_files_properties(${out} PROPERTIES SKIP_PRECOMPILE_HEADERS ON SKIP_UNITY_BUILD_INCLUSION ON)
endfunction()
