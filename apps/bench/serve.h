// The serving benchmark and --profile: measure, print, write.
#pragma once

#include "apps/bench/serve_flags.h"

namespace apps::bench {

// Exit code: 1 when a request failed, or as apps::Fail.
int Serve(ServeFlags flags);
int Profile(ServeFlags flags);

}  // namespace apps::bench
