set(VLLM_OUTER_FLAGS "" CACHE STRING "Compiler flags of programs and tests, after all others")

# Reading headers is nearly half of a build. Compiled once they hide an include that a file forgot, so the builds that
# people work in do without.
option(VLLM_PRECOMPILE "Compile the headers that most files read once (with clang)" OFF)
if(VLLM_PRECOMPILE)
  set(precompiled_headers <algorithm> <filesystem> <functional> <map> <memory> <optional> <string> <vector> <boost/json.hpp>
    ${CMAKE_SOURCE_DIR}/src/base/json.h ${CMAKE_SOURCE_DIR}/src/base/result.h ${CMAKE_SOURCE_DIR}/src/base/strings.h)
  file(CONFIGURE OUTPUT ${CMAKE_BINARY_DIR}/precompiled.cc CONTENT "int main() {}\n")
  add_library(precompiled_rooms OBJECT ${CMAKE_BINARY_DIR}/precompiled.cc)
  target_precompile_headers(precompiled_rooms PRIVATE ${precompiled_headers})
  # A program, as tests are: position-independent code of programs and of libraries differs.
  add_executable(precompiled_tests ${CMAKE_BINARY_DIR}/precompiled.cc)
  target_compile_options(precompiled_tests PRIVATE ${VLLM_OUTER_FLAGS})
  target_precompile_headers(precompiled_tests PRIVATE ${precompiled_headers} <gtest/gtest.h>)
  foreach(target precompiled_rooms precompiled_tests)
    target_include_directories(${target} PRIVATE ${CMAKE_SOURCE_DIR}/src)
    target_link_libraries(${target} PRIVATE Boost::headers Threads::Threads)
  endforeach()
  target_link_libraries(precompiled_tests PRIVATE GTest::gtest)
endif()

# At the end of a folder, when all of a target's properties are known: what is hidden in a module is compiled otherwise.
function(vllm_precompile target from)
  if(VLLM_PRECOMPILE)
    cmake_language(EVAL CODE "cmake_language(DEFER CALL vllm_reuse_precompiled ${target} ${from})")
  endif()
endfunction()
function(vllm_reuse_precompiled target from)
  get_target_property(visibility ${target} CXX_VISIBILITY_PRESET)
  if(NOT visibility STREQUAL "hidden")
    target_precompile_headers(${target} REUSE_FROM ${from})
  endif()
endfunction()

# One call a room (a folder of src/): its sources become an OBJECT library `room_<name>` and its *_test.cc files one
# test program `<name>_test`, each gtest case a ctest case.
#
#   vllm_room(text SOURCES a.cc b.cc TESTS a_test.cc DEPS room_or_library...)
function(vllm_room name)
  cmake_parse_arguments(ARG "" "" "SOURCES;TESTS;DEPS" ${ARGN})
  add_library(room_${name} OBJECT ${ARG_SOURCES})
  vllm_precompile(room_${name} precompiled_rooms)
  target_include_directories(room_${name} PUBLIC ${CMAKE_SOURCE_DIR}/src)
  target_link_libraries(room_${name} PUBLIC ${ARG_DEPS} Boost::headers Threads::Threads)
  if(VLLM_BUILD_TESTS AND ARG_TESTS)
    vllm_test(${name}_test SOURCES ${ARG_TESTS} DEPS room_${name} ${ARG_DEPS})
  endif()
endfunction()

set(VLLM_TEST_SHARDS "" CACHE STRING
  "Runs each test program in this many parts instead of a process a case: for builds whose programs start slowly")

# A gtest program of `SOURCES`, linked with `DEPS`; tests find committed files through VLLM_SOURCE_DIR. `PREFIX` begins
# the names of its cases in ctest, where two programs have the same ones.
function(vllm_test name)
  cmake_parse_arguments(ARG "" "PREFIX" "SOURCES;DEPS" ${ARGN})
  add_executable(${name} ${ARG_SOURCES})
  target_include_directories(${name} PRIVATE ${CMAKE_SOURCE_DIR} ${CMAKE_SOURCE_DIR}/src)
  target_compile_definitions(${name} PRIVATE VLLM_SOURCE_DIR="${CMAKE_SOURCE_DIR}" VLLM_BINARY_DIR="${CMAKE_BINARY_DIR}")
  target_compile_options(${name} PRIVATE ${VLLM_OUTER_FLAGS})
  target_link_libraries(${name} PRIVATE ${ARG_DEPS} GTest::gtest_main)
  vllm_precompile(${name} precompiled_tests)
  if(VLLM_TEST_SHARDS)
    foreach(shard RANGE 1 ${VLLM_TEST_SHARDS})
      math(EXPR index "${shard} - 1")
      add_test(NAME ${name}.${shard} COMMAND ${name} --gtest_brief=1)
      set_tests_properties(${name}.${shard} PROPERTIES TIMEOUT 900
        ENVIRONMENT "GTEST_TOTAL_SHARDS=${VLLM_TEST_SHARDS};GTEST_SHARD_INDEX=${index}")
    endforeach()
  else()
    gtest_discover_tests(${name} TEST_PREFIX "${ARG_PREFIX}" DISCOVERY_MODE PRE_TEST DISCOVERY_TIMEOUT 120
                         PROPERTIES TIMEOUT 600)
  endif()
endfunction()
