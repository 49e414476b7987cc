// The names under which the two drivers have the functions that vendor_driver.cc calls, and the
// numbers that differ. Only functions that every supported version exports: CUDA 12 and 13, ROCm
// 5.2 to 7. Numbers: cuda.h, hip_runtime_api.h.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace vt::gpu {

struct VendorNames {
  std::string label;                   // in sentences
  std::vector<std::string> libraries;  // to try in this order
  std::string missing;                 // what it means when none opens
  std::string init, driver_version, device_count, device_name, device_attribute, total_memory;
  std::string retain;  // CUDA: gives the context that `current` takes; HIP: "", it takes the index
  std::string current;
  std::string properties;  // HIP: where the architecture's name is found; CUDA: ""
  std::string allocate, free, allocate_host, free_host, memory_info;
  std::string stream_create, stream_destroy, stream_synchronize;
  std::string copy_to_device, copy_to_host, copy_on_device, fill;
  std::string event_create, event_destroy, event_record, event_wait, event_query, event_elapsed;
  std::string module_load, module_unload, module_function, launch;
  std::string function_attribute;  // "": shared memory needs no leave
  std::string launch_early;        // "": there is no early launch
  std::string capture_begin, capture_end, graph_instantiate, graph_nodes, graph_launch,
      graph_destroy, exec_destroy;
  bool instantiate_takes_log = false;
  std::string error_text;
  bool error_text_by_pointer = false;

  // Attributes of a device.
  int units = 0, wave = 0, shared_per_block = 0, major = 0, minor = 0;
};

inline const VendorNames& CudaNames() {
  static const VendorNames names = {
      .label = "CUDA",
      .libraries = {"libcuda.so.1"},
      .missing = "no NVIDIA driver is installed",
      .init = "cuInit",
      .driver_version = "cuDriverGetVersion",
      .device_count = "cuDeviceGetCount",
      .device_name = "cuDeviceGetName",
      .device_attribute = "cuDeviceGetAttribute",
      .total_memory = "cuDeviceTotalMem_v2",
      .retain = "cuDevicePrimaryCtxRetain",
      .current = "cuCtxSetCurrent",
      .properties = "",
      .allocate = "cuMemAlloc_v2",
      .free = "cuMemFree_v2",
      .allocate_host = "cuMemHostAlloc",
      .free_host = "cuMemFreeHost",
      .memory_info = "cuMemGetInfo_v2",
      .stream_create = "cuStreamCreate",
      .stream_destroy = "cuStreamDestroy_v2",
      .stream_synchronize = "cuStreamSynchronize",
      .copy_to_device = "cuMemcpyHtoDAsync_v2",
      .copy_to_host = "cuMemcpyDtoHAsync_v2",
      .copy_on_device = "cuMemcpyDtoDAsync_v2",
      .fill = "cuMemsetD8Async",
      .event_create = "cuEventCreate",
      .event_destroy = "cuEventDestroy_v2",
      .event_record = "cuEventRecord",
      .event_wait = "cuEventSynchronize",
      .event_query = "cuEventQuery",
      .event_elapsed = "cuEventElapsedTime",
      .module_load = "cuModuleLoadData",
      .module_unload = "cuModuleUnload",
      .module_function = "cuModuleGetFunction",
      .launch = "cuLaunchKernel",
      .function_attribute = "cuFuncSetAttribute",
      .launch_early = "cuLaunchKernelEx",
      .capture_begin = "cuStreamBeginCapture_v2",
      .capture_end = "cuStreamEndCapture",
      .graph_instantiate = "cuGraphInstantiateWithFlags",
      .graph_nodes = "cuGraphGetNodes",
      .graph_launch = "cuGraphLaunch",
      .graph_destroy = "cuGraphDestroy",
      .exec_destroy = "cuGraphExecDestroy",
      .instantiate_takes_log = false,
      .error_text = "cuGetErrorString",
      .error_text_by_pointer = true,
      .units = 16,
      .wave = 10,
      .shared_per_block = 97,  // what a function may have that was given leave
      .major = 75,
      .minor = 76};
  return names;
}

inline const VendorNames& RocmNames() {
  static const VendorNames names = {
      .label = "ROCm",
      .libraries = {"libamdhip64.so.7", "libamdhip64.so.6", "libamdhip64.so.5", "libamdhip64.so"},
      .missing = "no ROCm runtime (libamdhip64) is installed",
      .init = "hipInit",
      .driver_version = "hipDriverGetVersion",
      .device_count = "hipGetDeviceCount",
      .device_name = "hipDeviceGetName",
      .device_attribute = "hipDeviceGetAttribute",
      .total_memory = "hipDeviceTotalMem",
      .retain = "",
      .current = "hipSetDevice",
      .properties = "hipGetDeviceProperties",
      .allocate = "hipMalloc",
      .free = "hipFree",
      .allocate_host = "hipHostMalloc",
      .free_host = "hipHostFree",
      .memory_info = "hipMemGetInfo",
      .stream_create = "hipStreamCreateWithFlags",
      .stream_destroy = "hipStreamDestroy",
      .stream_synchronize = "hipStreamSynchronize",
      .copy_to_device = "hipMemcpyHtoDAsync",
      .copy_to_host = "hipMemcpyDtoHAsync",
      .copy_on_device = "hipMemcpyDtoDAsync",
      .fill = "hipMemsetD8Async",
      .event_create = "hipEventCreateWithFlags",
      .event_destroy = "hipEventDestroy",
      .event_record = "hipEventRecord",
      .event_wait = "hipEventSynchronize",
      .event_query = "hipEventQuery",
      .event_elapsed = "hipEventElapsedTime",
      .module_load = "hipModuleLoadData",
      .module_unload = "hipModuleUnload",
      .module_function = "hipModuleGetFunction",
      .launch = "hipModuleLaunchKernel",
      .function_attribute = "",
      .launch_early = "",
      .capture_begin = "hipStreamBeginCapture",
      .capture_end = "hipStreamEndCapture",
      .graph_instantiate = "hipGraphInstantiate",
      .graph_nodes = "hipGraphGetNodes",
      .graph_launch = "hipGraphLaunch",
      .graph_destroy = "hipGraphDestroy",
      .exec_destroy = "hipGraphExecDestroy",
      .instantiate_takes_log = true,
      .error_text = "hipGetErrorString",
      .error_text_by_pointer = false,
      .units = 63,
      .wave = 87,
      .shared_per_block = 74,
      .major = 23,
      .minor = 61};
  return names;
}

}  // namespace vt::gpu
