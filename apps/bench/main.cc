// vllm-bench: how fast a model or a server answers many requests (the default), how fast a fixed
// batch is (micro), and where a step's time goes (--profile).
#include "apps/bench/machine.h"
#include "apps/bench/micro.h"
#include "apps/bench/serve.h"
#include "apps/model_flags.h"
#include "apps/serving_flags.h"

namespace {

using apps::bench::kName;

int Measure(int argc, char** argv) {
  CLI::App app("Measure a model on this machine, or a server.", kName);
  app.require_subcommand(0, 1);
  apps::bench::ServeFlags flags;
  std::function<int()> subcommand;
  apps::bench::AddServeFlags(app, flags);
  apps::bench::AddMicro(app, subcommand);
  if (const int code = apps::Parse(app, argc, argv); code >= 0) return code;
  if (subcommand) {
    for (const CLI::Option* o : app.get_options()) {
      if (o->count() == 0) continue;
      return apps::Fail(
          kName, {base::Code::kInvalidArgument, o->get_name() + ": flags of micro stand after it"});
    }
    return subcommand();
  }
  flags.command = apps::bench::CommandText(argc, argv);
  base::Status settled = apps::bench::Settle(app, flags);
  if (settled && flags.url.empty()) settled = apps::CheckGraphFlags(flags.options, argc, argv);
  if (!settled) return apps::Fail(kName, settled.error());
  return flags.profile ? apps::bench::Profile(std::move(flags))
                       : apps::bench::Serve(std::move(flags));
}

}  // namespace

int main(int argc, char** argv) {
  return apps::Run(kName, [&] { return Measure(argc, argv); });
}
