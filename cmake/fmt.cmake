# fmt without a library of its own, so that programs start on any distribution: what its headers leave to one is compiled
# here once (src/base/fmt_library.cc). Compiled into every file, which is what fmt calls header-only, it would be half of
# the compiler's work; a version of fmt that asks for other things than that file gives is used so.
try_compile(VLLM_FMT_ONCE SOURCES ${CMAKE_SOURCE_DIR}/cmake/fmt_probe.cc ${CMAKE_SOURCE_DIR}/src/base/fmt_library.cc
  CXX_STANDARD 20 CXX_STANDARD_REQUIRED ON)
if(VLLM_FMT_ONCE)
  add_library(fmt_once STATIC ${CMAKE_SOURCE_DIR}/src/base/fmt_library.cc)
  set_target_properties(fmt_once PROPERTIES POSITION_INDEPENDENT_CODE ON CXX_VISIBILITY_PRESET hidden)
  link_libraries(fmt_once)
else()
  message(STATUS "fmt is compiled into every file")
  add_compile_definitions(FMT_HEADER_ONLY)
  unset(VLLM_FMT_ONCE CACHE)  # asked again next time: what failed may have been the machine (two configurations at once)
endif()
