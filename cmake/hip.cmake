# Compiles kernels for AMD cards: one code object a file and architecture, by clang's HIP mode without any header or
# library of ROCm (gpu_hip.h), so that Debian's clang-19 and lld-19 are enough. An installation of ROCm is used where there
# is one.
set(VLLM_HIP_ARCHS "gfx1100;gfx1200;gfx942" CACHE STRING "AMD architectures that kernels are compiled for")
option(VLLM_ALL_ARCHS "Compile kernels for every architecture that is known" OFF)
set(VLLM_HIP_MORE_ARCHS gfx90a gfx1101 gfx1102 gfx1103 gfx1150 gfx1151 gfx1201)

# Sets VLLM_HIP_COMPILER: a clang++ that compiles HIP, of ROCm where it is installed.
function(vt_find_hip_compiler)
  if(VLLM_HIP_COMPILER)
    return()
  endif()
  set(roots "")
  foreach(root "${ROCM_PATH}" "$ENV{ROCM_PATH}" "$ENV{HIP_PATH}" /opt/rocm)
    if(root)
      list(APPEND roots "${root}/lib/llvm/bin" "${root}/llvm/bin")
    endif()
  endforeach()
  find_program(VLLM_HIP_COMPILER NAMES clang++ PATHS ${roots} NO_DEFAULT_PATH DOC "clang++ that compiles kernels for AMD")
  find_program(VLLM_HIP_COMPILER NAMES clang++-19 clang++-20 clang++-21 clang++-22)
  if(NOT VLLM_HIP_COMPILER)
    message(FATAL_ERROR "Kernels for AMD cards need clang++ 19 or newer with lld, or ROCm (ROCM_PATH): tools/setup.sh rocm installs clang-19 and lld-19")
  endif()
  message(STATUS "Kernels for AMD: ${VLLM_HIP_COMPILER}")
endfunction()

# vt_hip_flags(<variable>): the compiler's flags, but for the architecture.
# Code object version 5 is what gpu_hip.h reads hidden arguments by; every ROCm since 5.5 loads it.
function(vt_hip_flags variable)
  set(${variable} -x hip -std=c++20 -O3 -nogpuinc -nogpulib --offload-device-only --no-gpu-bundle-output
    -mcode-object-version=5 -Wall -Wextra -Wno-pass-failed -Wno-cuda-compat PARENT_SCOPE)
endfunction()

# vt_compile_hip(<variable> FILES a.cu ...): appends `a|gfx1200|/path/a.gfx1200.co` for each file and architecture to the
# variable, which vt_embed_code takes.
function(vt_compile_hip variable)
  cmake_parse_arguments(ARG "" "" "FILES" ${ARGN})
  vt_find_hip_compiler()
  vt_hip_flags(flags)
  set(archs ${VLLM_HIP_ARCHS})
  if(VLLM_ALL_ARCHS)
    list(APPEND archs ${VLLM_HIP_MORE_ARCHS})
    list(REMOVE_DUPLICATES archs)
  endif()
  set(code ${${variable}})
  set(folder ${CMAKE_CURRENT_BINARY_DIR}/code)
  file(MAKE_DIRECTORY ${folder})
  set(launcher "")
  if(CCACHE)
    set(launcher ${CCACHE})
  endif()
  foreach(file ${ARG_FILES})
    get_filename_component(name ${file} NAME_WE)
    get_filename_component(file ${file} ABSOLUTE)
    foreach(arch ${archs})
      set(out ${folder}/${name}.${arch}.co)
      add_custom_command(OUTPUT ${out}
        COMMAND ${launcher} ${VLLM_HIP_COMPILER} ${flags} --offload-arch=${arch} -I${CMAKE_SOURCE_DIR} -I${CMAKE_SOURCE_DIR}/src
          -MD -MF ${out}.d -c ${file} -o ${out}
        DEPENDS ${file} DEPFILE ${out}.d COMMENT "Kernels ${name} for ${arch}" VERBATIM COMMAND_EXPAND_LISTS)
      list(APPEND code "${name}|${arch}|${out}")
    endforeach()
  endforeach()
  set(${variable} ${code} PARENT_SCOPE)
endfunction()
