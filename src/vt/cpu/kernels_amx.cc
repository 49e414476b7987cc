#include "vt/cpu/kernel_table.h"

namespace vt::cpu {

KernelSet KernelsAmx() {
  KernelSet s;
  s.name = "amx";
  FillKernels(s);
  return s;
}

}  // namespace vt::cpu
