# A third of the compiler's work is to read the same few headers for every file: here they are read once for all rooms, and
# once for all tests. Not where ccache is, which would have to be told of them and gives more. Files include what they use
# all the same: where ccache is nothing is precompiled, nor for the fuzzers, whose rooms have flags of their own.
set(precompile ON)
if(CCACHE)
  set(precompile OFF)
endif()
option(VLLM_PRECOMPILE "Precompile the headers that most files include" ${precompile})

# One call a room (a folder of src/): its sources become an OBJECT library `room_<name>` and its *_test.cc files one
# test program `<name>_test`, each gtest case a ctest case.
#
#   vllm_room(text SOURCES a.cc b.cc TESTS a_test.cc DEPS room_or_library...)
function(vllm_room name)
  cmake_parse_arguments(ARG "" "" "SOURCES;TESTS;DEPS" ${ARGN})
  add_library(room_${name} OBJECT ${ARG_SOURCES})
  target_include_directories(room_${name} PUBLIC ${CMAKE_SOURCE_DIR}/src)
  target_link_libraries(room_${name} PUBLIC ${ARG_DEPS} Boost::headers Threads::Threads)
  if(VLLM_PRECOMPILE)
    target_precompile_headers(room_${name} REUSE_FROM room_headers)
  endif()
  if(VLLM_BUILD_TESTS AND ARG_TESTS)
    vllm_test(${name}_test SOURCES ${ARG_TESTS} DEPS room_${name} ${ARG_DEPS})
  endif()
endfunction()

set(VLLM_OUTER_FLAGS "" CACHE STRING "Compiler flags of programs and tests, after all others")
# Tests spend their time in what they test.
set(VLLM_TEST_FLAGS "-O1" CACHE STRING "Compiler flags of tests, before VLLM_OUTER_FLAGS")
set(VLLM_TEST_SHARDS "" CACHE STRING
  "Runs each test program in this many parts instead of a process a case: for builds whose programs start slowly")

# A gtest program of `SOURCES`, linked with `DEPS`; tests find committed files through VLLM_SOURCE_DIR. `PREFIX` begins
# the names of its cases in ctest, where two programs have the same ones. `SHARDS`: it runs in so many parts instead of
# a process a case, which its cases are too many for.
function(vllm_test name)
  cmake_parse_arguments(ARG "" "PREFIX;SHARDS" "SOURCES;DEPS" ${ARGN})
  if(VLLM_TEST_SHARDS)
    set(ARG_SHARDS ${VLLM_TEST_SHARDS})
  endif()
  add_executable(${name} ${ARG_SOURCES})
  target_include_directories(${name} PRIVATE ${CMAKE_SOURCE_DIR} ${CMAKE_SOURCE_DIR}/src)
  target_compile_definitions(${name} PRIVATE VLLM_SOURCE_DIR="${CMAKE_SOURCE_DIR}" VLLM_BINARY_DIR="${CMAKE_BINARY_DIR}")
  target_compile_options(${name} PRIVATE ${VLLM_TEST_FLAGS} ${VLLM_OUTER_FLAGS})
  target_link_libraries(${name} PRIVATE ${ARG_DEPS} GTest::gtest_main)
  if(VLLM_PRECOMPILE)
    target_precompile_headers(${name} REUSE_FROM test_headers)
  endif()
  if(ARG_SHARDS)
    foreach(shard RANGE 1 ${ARG_SHARDS})
      math(EXPR index "${shard} - 1")
      add_test(NAME ${name}.${shard} COMMAND ${name} --gtest_brief=1)
      set_tests_properties(${name}.${shard} PROPERTIES TIMEOUT 900
        ENVIRONMENT "GTEST_TOTAL_SHARDS=${ARG_SHARDS};GTEST_SHARD_INDEX=${index}")
    endforeach()
  else()
    gtest_discover_tests(${name} TEST_PREFIX "${ARG_PREFIX}" DISCOVERY_MODE PRE_TEST DISCOVERY_TIMEOUT 120
                         PROPERTIES TIMEOUT 600)
  endif()
endfunction()

# What the precompiled headers are compiled with is what every room and every test is compiled with.
function(vllm_precompile)
  set(empty ${CMAKE_BINARY_DIR}/empty.cc)
  file(GENERATE OUTPUT ${empty} CONTENT "")
  add_library(room_headers OBJECT EXCLUDE_FROM_ALL ${empty})
  target_link_libraries(room_headers PRIVATE Boost::headers Threads::Threads)
  target_precompile_headers(room_headers PRIVATE <boost/json/value.hpp> <fmt/format.h>)
  if(VLLM_BUILD_TESTS)
    add_library(test_headers OBJECT EXCLUDE_FROM_ALL ${empty})
    set_target_properties(test_headers PROPERTIES POSITION_INDEPENDENT_CODE OFF)
    target_compile_options(test_headers PRIVATE ${VLLM_TEST_FLAGS} ${VLLM_OUTER_FLAGS} -fPIE)  # as programs are
    target_link_libraries(test_headers PRIVATE Boost::headers Threads::Threads GTest::gtest)
    target_precompile_headers(test_headers PRIVATE <gtest/gtest.h> <boost/json/value.hpp> <fmt/format.h>)
  endif()
endfunction()
