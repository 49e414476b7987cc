// Whether src/base/fmt_library.cc gives all that fmt's headers ask for (fmt.cmake).
#include <fmt/format.h>

#include <string>

int main(int argc, char**) {
  std::string s = fmt::format("{} {:>8.3f} {:g} {:x} {:L} {}", argc, 1.5 * argc, 2.0f * argc, 255u,
                              argc, "text");
  fmt::format_to(std::back_inserter(s), "{:e} {} {:+}", 1e300, 1.0f / 3, argc);
  return fmt::format(fmt::runtime("{}"), s).empty() ? 1 : 0;
}
