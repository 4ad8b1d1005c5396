# CUDA kernels. No compiler of CUDA is needed here: kernel files (.cu) are compiled by g++ as code that the
# emulated grid runs, every load and store calling a hook (-fsanitize=thread; the hooks are ours, in
# kernels/cuda/emulate, and libtsan is not linked). tests/kernels/cuda/gate_test.py compiles them for GPUs.
#
# quire_emulated_kernels(name [PLAIN] files...): kernel files as a library for tests; PLAIN ones without
# hooks, for emulated devices that check nothing.
function(quire_emulated_kernels name)
  cmake_parse_arguments(ARG "PLAIN" "" "" ${ARGN})
  set_source_files_properties(${ARG_UNPARSED_ARGUMENTS} PROPERTIES LANGUAGE CXX SKIP_PRECOMPILE_HEADERS ON
    COMPILE_OPTIONS "-x;c++;-O2;-Wno-unknown-pragmas;-mavx2;-mfma")
  add_library(${name} STATIC ${ARG_UNPARSED_ARGUMENTS})
  if(ARG_PLAIN)
    # Outputs of the span before are read from the second span on; the compiler cannot know.
    target_compile_options(${name} PRIVATE -Wno-uninitialized)
  else()
    target_compile_options(${name} PRIVATE -fsanitize=thread --param=tsan-instrument-func-entry-exit=0)
  endif()
  target_link_libraries(${name} PUBLIC quire_kernels_cuda_emulate)
endfunction()

# The hooks and the hand-made stacks are not for builds with a sanitizer of the compiler's own.
if(NOT QUIRE_SANITIZED AND NOT QUIRE_FUZZ AND CMAKE_SYSTEM_PROCESSOR STREQUAL "x86_64")
  set(QUIRE_EMULATED_CUDA ON)
  file(GLOB QUIRE_CUDA_OPS CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/kernels/cuda/ops/*/*.cu)
  quire_emulated_kernels(quire_cuda_ops ${QUIRE_CUDA_OPS})
  quire_emulated_kernels(quire_cuda_ops_plain PLAIN ${QUIRE_CUDA_OPS})
  file(GLOB QUIRE_CUDA_PLANTED CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/tests/kernels/cuda/planted/*.cu)
  quire_emulated_kernels(quire_cuda_planted ${QUIRE_CUDA_PLANTED})
  file(GLOB QUIRE_CUDA_TIMING CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/tests/kernels/cuda/timing/*.cu)
  quire_emulated_kernels(quire_cuda_timing PLAIN ${QUIRE_CUDA_TIMING})
endif()
