#include "vt/cpu/kernel_table.h"

namespace vt::cpu {

KernelSet KernelsAvx2() {
  KernelSet s;
  s.name = "avx2";
  FillKernels(s);
  return s;
}

}  // namespace vt::cpu
