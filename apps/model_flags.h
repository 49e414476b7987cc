// Flags that every program which loads a model takes, and how programs end.
#pragma once

#include <CLI/CLI.hpp>
#include <functional>
#include <string>

#include "base/result.h"
#include "vllm/engine/options.h"

namespace apps {

// --model and the flags of loading. `options` must outlive the parse.
void AddModelFlags(CLI::App& app, vllm::engine::LoadOptions& options);

// A check for numbers: inside [low, high], and a number at all (CLI11's own lets NaN pass).
std::function<std::string(const std::string&)> Within(double low, double high);

// Prints "name: message" on stderr; 2 for usage errors, else 1.
int Fail(const std::string& program, const base::Error& error);

// What was printed so far is written, or why it cannot be: a full disk, for one.
base::Status FlushOutput();

// A program's whole life: what `body` returns, or 1 after a sentence when it threw or when its
// output could not be written.
int Run(const std::string& program, const std::function<int()>& body);

// Parses; on --help or a usage error prints and returns the exit code (0 or 2), else -1.
int Parse(CLI::App& app, int argc, char** argv);

// A progress bar on stderr, drawn only on a terminal.
void ShowProgress(vllm::engine::LoadOptions& options);

}  // namespace apps
