// What a record must say beside its figures.
#pragma once

#include <string>

namespace apps::bench {

// "AMD EPYC, 2 threads, AVX2": this computer's processor.
std::string ProcessorText();
// Name and description of a device as --device names it; the name alone where it is not found.
std::string DeviceText(const std::string& device);
// "2026-11-29 22:10 UTC".
std::string DateText();
// As it could be typed again; the value of --api-key is left out.
std::string CommandText(int argc, char** argv);

}  // namespace apps::bench
