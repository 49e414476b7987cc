// vllm-inspect: what a model is, what is computed for it, and what it says, for people and for
// other programs.
#include "apps/inspect.h"
#include "apps/model_flags.h"

namespace {

int Inspect(int argc, char** argv) {
  CLI::App app(
      "Look into a model: its files, graph, plan, tokens, template, log-probabilities and "
      "perplexity.",
      apps::kInspect);
  app.require_subcommand(1);
  apps::Action action;
  apps::AddInfo(app, action);
  apps::AddGraph(app, action);
  apps::AddPlan(app, action);
  apps::AddLogits(app, action);
  apps::AddTokenize(app, action);
  apps::AddDetokenize(app, action);
  apps::AddTemplate(app, action);
  apps::AddPerplexity(app, action);
  apps::AddDevices(app, action);
  if (const int code = apps::Parse(app, argc, argv); code >= 0) return code;
  return action();
}

}  // namespace

int main(int argc, char** argv) {
  return apps::Run(apps::kInspect, [&] { return Inspect(argc, argv); });
}
