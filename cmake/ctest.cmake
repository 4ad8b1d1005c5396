# How a binary of tests becomes tests of CTest: in which builds and tiers it runs, what it may take, and in how many
# pieces. `ctest --test-dir build -R test_router_http` runs one; ./dev test runs a tier over all builds.
#
# Unless it says otherwise a suite runs under AddressSanitizer alone in the normal tier, in the release build alone in the
# quick tier, and in both in the long tier. Its options, which quire_test and quire_fuzz hand on:
#   RELEASE          the release build alone: it computes much, loads libraries, or needs what sanitized builds lack
#   BOTH             in the normal tier both builds, each for its own reason
#   NOT_QUICK        never in the quick tier
#   MINUTES m        what it is declared to take in the release build, 0.2 when left out; ASAN_MINUTES m under ASan
#   SHARDS n         runs as n tests, NAME.1 to NAME.n, that share its cases
#   LATER pattern... cases that wait for the long tier, as the test NAME.rest
#   LEFT pattern...  cases that a sanitized build leaves to the release build, beside suites called ...Slow or ...SlowTest
#   ASAN_ENV a=b...  environment under AddressSanitizer
#   THREADS pattern... cases that run under ThreadSanitizer, in the long tier; less those of a pattern that begins with -
set(QUIRE_TEST_OPTIONS RELEASE BOTH NOT_QUICK)
set(QUIRE_TEST_VALUES MINUTES ASAN_MINUTES SHARDS)
set(QUIRE_TEST_LISTS LATER LEFT ASAN_ENV THREADS)
set(QUIRE_TEST_RESULTS ${CMAKE_BINARY_DIR}/tests/results)
enable_testing()

# quire_add_ctest(test binary tiers filter environment seconds): the limit ends only what hangs.
function(quire_add_ctest test binary tiers filter environment seconds)
  add_test(NAME ${test} COMMAND ${binary} WORKING_DIRECTORY ${CMAKE_SOURCE_DIR})
  math(EXPR limit "5 * ${seconds}")
  if(limit LESS 180)
    set(limit 180)
  endif()
  list(APPEND environment GTEST_OUTPUT=json:${QUIRE_TEST_RESULTS}/${test}.json GTEST_BRIEF=1)
  if(filter)
    list(APPEND environment "GTEST_FILTER=${filter}")
  endif()
  set_tests_properties(${test} PROPERTIES LABELS "${tiers}" COST ${seconds} TIMEOUT ${limit} ENVIRONMENT "${environment}")
endfunction()

# quire_ctest(name): reads the options as the ARG_ of the function that calls it.
function(quire_ctest name)
  set(tiers quick long)
  set(environment)
  set(filter)
  set(minutes ${ARG_MINUTES})
  if(QUIRE_ASAN)
    if(ARG_RELEASE)
      return()
    endif()
    set(tiers normal long)
    set(minutes ${ARG_ASAN_MINUTES})
    list(JOIN ARG_LEFT ":" left)
    set(filter "-*Slow.*:*SlowTest.*:${left}")
    # Leaks count; the Rust bridge and the C++ side free with their own allocators.
    set(environment ASAN_OPTIONS=detect_stack_use_after_return=1:strict_string_checks=1
                    UBSAN_OPTIONS=print_stacktrace=1 ${ARG_ASAN_ENV})
  elseif(QUIRE_TSAN)
    if(NOT ARG_THREADS)
      return()
    endif()
    set(tiers long)
    set(only ${ARG_THREADS})
    set(less ${ARG_THREADS})
    list(FILTER only EXCLUDE REGEX "^-")
    list(FILTER less INCLUDE REGEX "^-")
    list(JOIN only ":" only)
    list(TRANSFORM less REPLACE "^-" ":")
    list(JOIN less "" less)
    set(filter "${only}-*Slow.*:*SlowTest.*${less}")
    set(environment
        TSAN_OPTIONS=second_deadlock_stack=1:suppressions=${CMAKE_SOURCE_DIR}/tests/sanitizers/threads.supp)
  elseif(ARG_RELEASE OR ARG_BOTH)
    list(APPEND tiers normal)
  endif()
  if(ARG_NOT_QUICK)
    list(REMOVE_ITEM tiers quick)
  endif()
  if(NOT minutes)
    set(minutes 0.2)
  endif()
  # CMake counts in whole numbers.
  string(REGEX MATCH "^([0-9]+)\\.?([0-9]?)$" whole "${minutes}")
  math(EXPR seconds "${CMAKE_MATCH_1}0 + 0${CMAKE_MATCH_2}")
  math(EXPR seconds "${seconds} * 6")
  if(ARG_LATER AND NOT QUIRE_SANITIZED)
    list(JOIN ARG_LATER ":" later)
    quire_add_ctest(${name} ${name} "${tiers}" "-${later}" "${environment}" ${seconds})
    quire_add_ctest(${name}.rest ${name} "long" "${later}" "${environment}" ${seconds})
  elseif(ARG_SHARDS)
    math(EXPR seconds "${seconds} / ${ARG_SHARDS}")
    foreach(shard RANGE 1 ${ARG_SHARDS})
      math(EXPR index "${shard} - 1")
      quire_add_ctest(${name}.${shard} ${name} "${tiers}" "${filter}"
                      "${environment};GTEST_TOTAL_SHARDS=${ARG_SHARDS};GTEST_SHARD_INDEX=${index}" ${seconds})
    endforeach()
  else()
    quire_add_ctest(${name} ${name} "${tiers}" "${filter}" "${environment}" ${seconds})
  endif()
endfunction()
