#include "vt/cpu/kernel_table.h"

namespace vt::cpu {

KernelSet KernelsAvx512Vnni() {
  KernelSet s;
  s.name = "avx512_vnni";
  FillKernels(s);
  return s;
}

}  // namespace vt::cpu
