// The results as one page of HTML that needs nothing from elsewhere.
#pragma once

#include <string>

#include "apps/bench/results.h"

namespace apps::bench {

std::string Report(const Results& results);

}  // namespace apps::bench
