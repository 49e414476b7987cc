#include "vt/cpu/kernel_table.h"

namespace vt::cpu {

KernelSet KernelsAvx512Bf16() {
  KernelSet s;
  s.name = "avx512_bf16";
  FillKernels(s);
  return s;
}

}  // namespace vt::cpu
