#include "vt/cpu/kernel_table.h"

namespace vt::cpu {

KernelSet KernelsScalar() {
  KernelSet s;
  s.name = "scalar";
  FillKernels(s);
  return s;
}

}  // namespace vt::cpu
