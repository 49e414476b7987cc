// Prints what a device supports and how fast it is, from the table of op cases:
//
//   op_table [device] [instruction set] [dtype] [beginning of a case's name]
#include <cstdio>

#include "base/strings.h"
#include "tests/op_cases.h"
#include "vt/device/registry.h"

int main(int argc, char** argv) {
  const std::string device = argc > 1 ? argv[1] : "cpu";
  const std::string only = argc > 4 ? argv[4] : "";  // cases whose names begin so
  vt::DeviceRegistry registry = vt::DeviceRegistry::Load();
  auto found = registry.Find(device);
  if (!found) {
    fmt::print(stderr, "{}\n", found.error().message);
    return 2;
  }
  auto backend = found->first->Open({.index = found->second,
                                     .threads = 0,
                                     .isa = argc > 2 ? argv[2] : "",
                                     .dtype = argc > 3 ? argv[3] : ""});
  if (!backend) {
    fmt::print(stderr, "{}\n", backend.error().message);
    return 2;
  }
  fmt::print("{}: {}\n\nSupport (error and bound relative to the largest value of a row)\n",
             (*backend)->TargetName(), (*backend)->Info().description);
  int wrong = 0;
  for (const tests::OpCase& c : tests::OpCases()) {
    if (c.name.rfind(only, 0) != 0) continue;
    const tests::CaseResult r = tests::RunCase(c, **backend, true);
    const bool good = r.error.empty() && r.max_error <= r.tolerance;
    wrong += r.supported && !good;
    fmt::print("{:<32} {:<6} {:>9.1e} of {:.0e}  nodes {:>2}, fused {:>2}  {}\n", c.name,
               !r.supported ? "none"
               : good       ? "yes"
                            : "WRONG",
               r.max_error, r.tolerance, r.nodes, r.fused,
               !r.supported       ? r.why
               : !r.error.empty() ? r.error
               : good             ? ""
                                  : r.worst);
  }
  fmt::print("\nSpeed (best of 20)\n{:<36} {:>10} {:>12} {:>8}\n", "", "us", "predicted", "GB/s");
  for (const tests::OpCase& c : tests::SpeedCases()) {
    if (c.name.rfind(only, 0) != 0) continue;
    const tests::CaseResult r = tests::RunCase(c, **backend, true, 20);
    if (!r.supported || !r.error.empty()) continue;
    fmt::print("{:<36} {:>10.1f} {:>12.1f} {:>8.2f}\n", c.name, r.seconds * 1e6, r.predicted * 1e6,
               r.bytes / r.seconds / 1e9);
  }
  return wrong == 0 ? 0 : 1;
}
