// vllm-bench micro: prefill and decode rates of a fixed number of sequences, a line a setting.
#pragma once

#include <CLI/CLI.hpp>
#include <functional>

namespace apps::bench {

// Adds the subcommand; when it is used, `action` is set to what runs it and gives the exit code.
void AddMicro(CLI::App& app, std::function<int()>& action);

}  // namespace apps::bench
