# libvt_cuda.so: each file of kernels becomes one fat binary (machine code for VLLM_CUDA_ARCHS), embedded in the module.
# The compiler is needed to build; to load, the module needs nothing of CUDA.
include(${CMAKE_SOURCE_DIR}/cmake/embed_code.cmake)
find_program(NVCC nvcc HINTS /usr/local/cuda/bin /opt/cuda/bin)
if(NOT NVCC)
  message(FATAL_ERROR "The cuda preset needs nvcc (CUDA 12.8 or newer): put it on PATH, or use another preset")
endif()
# 80, 90a, 100a, 120a as machine code and "ptx80" for what comes after: tools set them all (make all-archs).
set(VLLM_CUDA_ARCHS "90a" CACHE STRING "Architectures of CUDA kernels: 80;90a;100a;120a;ptx80")

function(vt_cuda_module)
  set(targets "")
  foreach(arch ${VLLM_CUDA_ARCHS})
    if(arch MATCHES "^ptx(.*)$")
      list(APPEND targets -gencode arch=compute_${CMAKE_MATCH_1},code=compute_${CMAKE_MATCH_1})
    else()
      list(APPEND targets -gencode arch=compute_${arch},code=sm_${arch})
    endif()
  endforeach()
  set(code "")
  set(code_files "")
  foreach(file ${gpu_kernel_files})
    get_filename_component(name ${file} NAME_WE)
    set(source ${CMAKE_CURRENT_SOURCE_DIR}/kernels/${file})
    set(out ${CMAKE_CURRENT_BINARY_DIR}/${name}.fatbin)
    add_custom_command(OUTPUT ${out}
      COMMAND ${NVCC} -std=c++20 -O3 ${targets} -Xptxas -warn-spills -lineinfo -I${CMAKE_SOURCE_DIR}/src -MD -MT ${out}
              -MF ${out}.d -fatbin -o ${out} ${source}
      DEPENDS ${source} DEPFILE ${out}.d COMMENT "Building CUDA kernels ${file}" VERBATIM)
    list(APPEND code "${name}||${out}")
    list(APPEND code_files ${out})
  endforeach()
  add_custom_target(cuda_code DEPENDS ${code_files})
  add_library(vt_cuda MODULE module_cuda.cc $<TARGET_OBJECTS:gpu_host> ${gpu_vendor_files})
  vt_embed_code(vt_cuda CudaCode CODE ${code})
  target_link_libraries(vt_cuda PRIVATE vt)
  set_target_properties(vt_cuda PROPERTIES CXX_VISIBILITY_PRESET hidden VISIBILITY_INLINES_HIDDEN ON)
endfunction()
