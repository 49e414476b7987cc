// Shared objects opened at run time, and where this program lives.
#pragma once

#include <cstdint>
#include <string>

#include "base/result.h"

namespace base::os {

// Opens a shared object and keeps it open for the life of the process. Errors: kUnavailable with
// the loader's reason.
Result<void*> OpenModule(const std::string& path);
// A symbol of it. Errors: kNotFound.
Result<void*> FindSymbol(void* module, const std::string& name);

// Folder of the running program, without a trailing slash.
std::string ProgramFolder();

// Whether a descriptor (0, 1, 2) is an interactive terminal.
bool IsTerminal(int descriptor);

// Peak resident memory of this process, in bytes (VmHWM).
uint64_t PeakResidentBytes();

}  // namespace base::os
