// From the parts of a request's header to HttpRequest, and what is wrong with requests that a
// parser lets pass.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "net/http_server.h"

namespace net {

std::string LowerCase(std::string_view text);

// A header's value by its name in lower case; empty where it is not there.
const std::string& HeaderOf(const HttpRequest& request, const std::string& name);

// Path and query. The path is left empty when the target is malformed.
void SetTarget(HttpRequest& request, std::string_view target);

// Repeated names are joined with ", ".
void AddHeader(HttpRequest& request, std::string_view name, std::string_view value);

// Status and sentence. `hosts`: how many Host headers it has.
std::optional<std::pair<int, std::string>> FaultOf(const HttpRequest& request, bool http_1_0,
                                                   size_t hosts);

}  // namespace net
