// Flags of the engine that serves many at once; with apps::AddModelFlags these are all of
// LoadOptions.
#pragma once

#include <CLI/CLI.hpp>
#include <memory>

#include "base/result.h"
#include "vllm/engine/options.h"

namespace apps {

// A flag that AddModelFlags has made already is left as it is.
void AddServingFlags(CLI::App& app, vllm::engine::LoadOptions& options);

// --config FILE: the long names of flags, a line each, in the part of YAML that needs no more:
// "port: 8000", "served-model-name: [a, b]" or a list of "- a" lines, # comments, quotes.
void AddConfigFlag(CLI::App& app);

// A flag of captured graphs is an error on the command line (in a file it is not) when the device
// has none.
base::Status CheckGraphFlags(const vllm::engine::LoadOptions& options, int argc, char** argv);

}  // namespace apps
