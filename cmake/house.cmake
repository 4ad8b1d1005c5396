# The helper functions behind every library, program, test and fuzz target.

# The instruction set a kernel file is compiled for is the end of its name: gemm_avx2.cc.
set(QUIRE_ISA_avx2 -mavx2 -mfma -mf16c -mbmi2)
set(QUIRE_ISA_avxvnni ${QUIRE_ISA_avx2} -mavxvnni)
set(QUIRE_ISA_avx512 ${QUIRE_ISA_avx2} -mavx512f -mavx512bw -mavx512dq -mavx512vl -mavx512cd -mprefer-vector-width=512
    -Wno-uninitialized)  # GCC 12's own AVX-512 headers read an undefined register on purpose
set(QUIRE_ISA_avx512vnni ${QUIRE_ISA_avx512} -mavx512vnni)
set(QUIRE_ISA_avx512bf16 ${QUIRE_ISA_avx512vnni} -mavx512bf16)
set(QUIRE_ISA_amx ${QUIRE_ISA_avx512bf16} -mamx-tile -mamx-bf16 -mamx-int8)

# libquire.so holds these rooms: their code runs at any address, and shows others nothing but its C functions.
set(QUIRE_IN_LIBRARY "^(common|kernels|worker|library|router)(/|$)")
function(quire_for_library name)
  set_target_properties(${name} PROPERTIES POSITION_INDEPENDENT_CODE ON CXX_VISIBILITY_PRESET hidden
                                           VISIBILITY_INLINES_HIDDEN ON)
endfunction()

# The precompiled headers, each carried by a target of its own.
if(QUIRE_USE_PCH)
  file(WRITE ${CMAKE_BINARY_DIR}/pch/empty_library.cc "")
  add_library(quire_library_pch STATIC ${CMAKE_BINARY_DIR}/pch/empty_library.cc)
  quire_for_library(quire_library_pch)
  target_precompile_headers(quire_library_pch PRIVATE ${QUIRE_PCH_HEADERS})
  file(WRITE ${CMAKE_BINARY_DIR}/pch/empty.cc "")
  file(WRITE ${CMAKE_BINARY_DIR}/pch/empty_test.cc "")
  add_library(quire_pch STATIC ${CMAKE_BINARY_DIR}/pch/empty.cc)
  target_precompile_headers(quire_pch PRIVATE ${QUIRE_PCH_HEADERS})
  add_library(quire_test_pch STATIC ${CMAKE_BINARY_DIR}/pch/empty_test.cc)
  target_precompile_headers(quire_test_pch PRIVATE ${QUIRE_PCH_HEADERS} <gtest/gtest.h>)
  if(QUIRE_ASAN)
    target_compile_options(quire_test_pch PRIVATE -fno-sanitize=undefined)
  endif()
  target_compile_options(quire_test_pch PRIVATE ${QUIRE_TEST_OPTIMISATION})
  target_link_libraries(quire_test_pch PRIVATE GTest::gtest)  # brings its definitions
endif()

# The sources of a target as few large files: headers are read, and templates made, once for eight of them. Files that say
# something else by the name of a neighbour's stay alone, and one whose place another takes in a program of the tests. A
# file may come to lean on what a neighbour includes: -DQUIRE_UNITY=OFF, which ./dev lint has too, compiles each by itself.
set(QUIRE_ALONE
    cli/models/weight_gguf cli/watch/worker_lines common/text/text_bundle common/text/text_bundle_files kernels/cuda/driver/nvml
    router/discovery/kubernetes_source router/oip/infer_request router/records/trace_sink
    worker/device/linked_device worker/rank_programs tests/common/config/schema_test
    tests/golden/demo_test tests/golden/one_answer_test tests/golden/prompt_logprobs_test tests/golden/ranks_test
    tests/kernels/sampler_test tests/kernels/slice_sampler_test tests/worker/device/device_test
    tests/router/admission/admission_test tests/router/dispatch/failover_test tests/router/grpc/wire_limits_test
    tests/router/front/oip_edge_test tests/router/grpc/wire_test tests/router/http/page_test tests/router/link/dialer_tls_test
    tests/router/records/trace_sink_test tests/worker/load/model_files_test
    tests/worker/records/attempt_log_test tests/worker/steady/rank_step_test)
list(TRANSFORM QUIRE_ALONE REPLACE "(.+)" "${CMAKE_SOURCE_DIR}/\\1.cc")
foreach(source ${QUIRE_ALONE})
  if(NOT EXISTS ${source})
    message(FATAL_ERROR "QUIRE_ALONE in cmake/house.cmake names ${source}, which is gone: take it out")
  endif()
endforeach()
set_source_files_properties(${QUIRE_ALONE} PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
function(quire_join_sources name)
  if(QUIRE_UNITY)
    set_target_properties(${name} PROPERTIES UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE 8)
  endif()
endfunction()

function(quire_use_pch name from)
  if(QUIRE_USE_PCH)
    target_precompile_headers(${name} REUSE_FROM ${from})
  endif()
endfunction()

function(quire_target_name path out)
  string(REPLACE "/" "_" name "quire_${path}")
  set(${out} ${name} PARENT_SCOPE)
endfunction()

# Under a sanitizer the fast kernels are left as they are: instrumented, they take minutes each to compile,
# and the reference kernels, which are not spared, walk the same layouts with the same indices.
function(quire_apply_isa sources)
  foreach(source ${sources})
    foreach(isa avx2 avxvnni avx512 avx512vnni avx512bf16 amx)
      if(source MATCHES "_${isa}\\.cc$")
        set(options -O3 ${QUIRE_ISA_${isa}})
        if(QUIRE_SANITIZED AND source MATCHES "_reference_")
          set(options -O1 ${QUIRE_ISA_${isa}})
        elseif(QUIRE_SANITIZED OR QUIRE_FUZZ)
          set(options -O1 -fno-sanitize=all ${QUIRE_ISA_${isa}})
        endif()
        set_source_files_properties(${source} PROPERTIES COMPILE_OPTIONS "${options}" SKIP_PRECOMPILE_HEADERS ON)
      endif()
    endforeach()
  endforeach()
endfunction()

# UndefinedBehaviorSanitizer takes a quarter of the time that a file takes, in adapters nearly half of it, for
# checks of what Asio's templates do. AddressSanitizer alone watches those, and the tests' own code.
function(quire_watch_less sources)
  if(NOT QUIRE_ASAN)
    return()
  endif()
  foreach(source ${sources})
    if(source MATCHES "_asio\\.cc$")
      set_source_files_properties(${source} PROPERTIES COMPILE_OPTIONS -fno-sanitize=undefined)
    endif()
  endforeach()
endfunction()
function(quire_is_test name)
  if(QUIRE_ASAN)
    target_compile_options(${name} PRIVATE -fno-sanitize=undefined)
  endif()
endfunction()

# With a release build at hand its objects take the place of the sources that are not watched.
function(quire_take_plain path name out)
  set(taken)
  foreach(source ${${out}})
    if(QUIRE_PLAIN_BUILD AND source MATCHES "_(avx2|avxvnni|avx512|avx512vnni|avx512bf16|amx)\\.cc$"
       AND NOT source MATCHES "_reference_")
      get_filename_component(file ${source} NAME)
      set(source ${QUIRE_PLAIN_BUILD}/CMakeFiles/${name}.dir/${path}/${file}.o)
      set_source_files_properties(${source} PROPERTIES EXTERNAL_OBJECT TRUE GENERATED TRUE)
    endif()
    list(APPEND taken ${source})
  endforeach()
  set(${out} ${taken} PARENT_SCOPE)
endfunction()

# quire_folder(path PARTS subfolder... DEPS folder... LIBS library...): the library of one folder. PARTS are
# subfolders that belong to it; DEPS are folders of this tree that it may include; LIBS come from outside.
function(quire_folder path)
  cmake_parse_arguments(ARG "" "" "PARTS;DEPS;LIBS" ${ARGN})
  quire_target_name(${path} name)
  file(GLOB sources CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/${path}/*.cc)
  foreach(part ${ARG_PARTS})
    file(GLOB files CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/${path}/${part}/*.cc)
    list(APPEND sources ${files})
  endforeach()
  list(FILTER sources EXCLUDE REGEX "/main\\.cc$")
  set(links)
  foreach(dep ${ARG_DEPS})
    quire_target_name(${dep} dep_name)
    list(APPEND links ${dep_name})
  endforeach()
  if(sources)
    quire_apply_isa("${sources}")
    quire_watch_less("${sources}")
    quire_take_plain(${path} ${name} sources)
    add_library(${name} STATIC ${sources})
    if(path MATCHES ${QUIRE_IN_LIBRARY})
      quire_for_library(${name})
      quire_use_pch(${name} quire_library_pch)
    else()
      quire_use_pch(${name} quire_pch)
    endif()
    if(NOT path MATCHES "^kernels/cuda/")  # of these the worker takes single objects, without what the plugin has
      quire_join_sources(${name})
    endif()
    target_link_libraries(${name} PUBLIC ${links} ${ARG_LIBS} Threads::Threads)
  else()
    add_library(${name} INTERFACE)
    target_link_libraries(${name} INTERFACE ${links} ${ARG_LIBS} Threads::Threads)
  endif()
endfunction()

# All programs, and what stands in for others in tests of programs: what the suites in Python start.
add_custom_target(quire_programs)

# quire_shared_library(name DEPS folder...): all of one folder as lib<name>.so in the build folder's lib/. It shows what
# library/symbols.map lists, and finds first what stands beside it. A sanitizer's runtime would have to come with it.
function(quire_shared_library name)
  if(QUIRE_SANITIZED OR QUIRE_FUZZ)
    return()
  endif()
  cmake_parse_arguments(ARG "" "" "DEPS" ${ARGN})
  quire_target_name(${ARG_DEPS} folder)
  file(WRITE ${CMAKE_BINARY_DIR}/empty_${name}.cc "")
  add_library(${name}_shared SHARED ${CMAKE_BINARY_DIR}/empty_${name}.cc)
  target_link_libraries(${name}_shared PRIVATE $<LINK_LIBRARY:WHOLE_ARCHIVE,${folder}>)
  target_link_options(${name}_shared PRIVATE -Wl,--as-needed -Wl,--no-undefined -Wl,--disable-new-dtags
                      -Wl,--version-script=${CMAKE_SOURCE_DIR}/library/symbols.map)
  set_target_properties(${name}_shared PROPERTIES OUTPUT_NAME ${name} BUILD_RPATH "$ORIGIN"
                        LIBRARY_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/lib)
  set_property(TARGET ${name}_shared APPEND PROPERTY LINK_DEPENDS ${CMAKE_SOURCE_DIR}/library/symbols.map)
  add_dependencies(quire_programs ${name}_shared)
endfunction()

# quire_program(name main.cc DEPS folder...): one executable, in the build folder's bin/.
function(quire_program name source)
  cmake_parse_arguments(ARG "" "" "DEPS" ${ARGN})
  if(NOT EXISTS ${CMAKE_SOURCE_DIR}/${source})
    return()
  endif()
  add_executable(${name} ${CMAKE_SOURCE_DIR}/${source})
  foreach(dep ${ARG_DEPS})
    quire_target_name(${dep} dep_name)
    target_link_libraries(${name} PRIVATE ${dep_name})
  endforeach()
  set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/bin)
  add_dependencies(quire_programs ${name})
endfunction()


# quire_test(path [COMPUTES] DEPS folder... [SOURCES further files] [options of cmake/ctest.cmake]): tests/<path>/*_test.cc
# as one GoogleTest binary. Its own files are not optimised, which halves the time that they take to compile, unless it
# COMPUTES much itself.
function(quire_test path)
  cmake_parse_arguments(ARG "COMPUTES;${QUIRE_TEST_OPTIONS}" "${QUIRE_TEST_VALUES}" "DEPS;LIBS;SOURCES;${QUIRE_TEST_LISTS}"
                        ${ARGN})
  file(GLOB sources CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/tests/${path}/*.cc)
  list(APPEND sources ${ARG_SOURCES})
  if(NOT sources)
    return()
  endif()
  string(REPLACE "/" "_" name "test_${path}")
  quire_apply_isa("${sources}")
  add_executable(${name} ${sources})
  quire_is_test(${name})
  if(ARG_COMPUTES)
    quire_use_pch(${name} quire_pch)
  else()
    target_compile_options(${name} PRIVATE ${QUIRE_TEST_OPTIMISATION})
    quire_use_pch(${name} quire_test_pch)
  endif()
  if(NOT path MATCHES "^kernels/cuda")  # tests/kernels/cuda/device_build.py takes single objects of these
    quire_join_sources(${name})
  endif()
  foreach(dep ${ARG_DEPS})
    quire_target_name(${dep} dep_name)
    target_link_libraries(${name} PRIVATE ${dep_name})
  endforeach()
  target_link_libraries(${name} PRIVATE ${ARG_LIBS} GTest::gtest GTest::gtest_main)
  target_compile_definitions(${name} PRIVATE QUIRE_SOURCE_DIR="${CMAKE_SOURCE_DIR}"
                             QUIRE_BINARY_DIR="${CMAKE_BINARY_DIR}")
  set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests)
  quire_ctest(${name})
endfunction()

# What replays a corpus, compiled once for all targets.
add_library(quire_fuzz_replay OBJECT EXCLUDE_FROM_ALL ${CMAKE_SOURCE_DIR}/tests/fuzz/replay/replay.cc)
target_compile_definitions(quire_fuzz_replay PRIVATE QUIRE_CORPORA_DIR="${CMAKE_SOURCE_DIR}/tests/fuzz/corpus")
quire_is_test(quire_fuzz_replay)

# quire_fuzz(path DEPS folder... [options of cmake/ctest.cmake]): tests/fuzz/<path>_fuzz.cc. Under QUIRE_FUZZ it is a
# libFuzzer target; otherwise the same file replays its corpus as an ordinary test.
function(quire_fuzz path)
  cmake_parse_arguments(ARG "${QUIRE_TEST_OPTIONS}" "${QUIRE_TEST_VALUES}" "DEPS;LIBS;${QUIRE_TEST_LISTS}" ${ARGN})
  set(source ${CMAKE_SOURCE_DIR}/tests/fuzz/${path}_fuzz.cc)
  if(NOT EXISTS ${source})
    return()
  endif()
  set(name fuzz_${path})
  if(QUIRE_FUZZ)
    add_executable(${name} ${source})
    target_link_options(${name} PRIVATE -fsanitize=fuzzer)
  else()
    add_executable(${name} ${source})
    quire_is_test(${name})
    target_link_libraries(${name} PRIVATE quire_fuzz_replay)
  endif()
  foreach(dep ${ARG_DEPS})
    quire_target_name(${dep} dep_name)
    target_link_libraries(${name} PRIVATE ${dep_name})
  endforeach()
  target_link_libraries(${name} PRIVATE ${ARG_LIBS})
  set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests)
  if(NOT QUIRE_FUZZ)
    quire_ctest(${name})
  endif()
endfunction()
