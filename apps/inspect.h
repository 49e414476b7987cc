// The sub-commands of vllm-inspect. Each adds itself to the program; its callback returns the exit
// code.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace apps {

inline constexpr const char* kInspect = "vllm-inspect";

// The chosen sub-command leaves what to do here.
using Action = std::function<int()>;

// A flag of token ids, separated by commas.
CLI::Option* AddIds(CLI::App& app, const std::string& flag, std::vector<int32_t>& ids,
                    const std::string& help);

void AddInfo(CLI::App& app, Action& action);   // metadata, configuration, tensors
void AddGraph(CLI::App& app, Action& action);  // the graph before and after each pass
void AddPlan(CLI::App& app,
             Action& action);  // kernels, memory plan, predicted against measured time a node
void AddLogits(CLI::App& app, Action& action);   // log-probabilities after every position
void AddDevices(CLI::App& app, Action& action);  // modules and devices found
void AddTokenize(CLI::App& app, Action& action);
void AddDetokenize(CLI::App& app, Action& action);
void AddTemplate(CLI::App& app, Action& action);
void AddPerplexity(CLI::App& app, Action& action);  // how well it foretells a text

}  // namespace apps
