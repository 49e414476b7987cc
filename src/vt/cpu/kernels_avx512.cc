#include "vt/cpu/kernel_table.h"

namespace vt::cpu {

KernelSet KernelsAvx512() {
  KernelSet s;
  s.name = "avx512";
  FillKernels(s);
  return s;
}

}  // namespace vt::cpu
