// JSON written straight into a string: an answer is made thousands of times a second, and a tree of
// values in between would cost more than the rest.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace vllm::server {

// Appends `text` as a JSON string with its quotes. REQUIRES: valid UTF-8, which stays as it is.
void AppendJsonString(std::string_view text, std::string& out);
// The same for the inside of a string.
void AppendJsonEscaped(std::string_view text, std::string& out);
void AppendInt(int64_t value, std::string& out);
// Shortest text that reads back as the same float. Not finite: -9999, as vLLM bounds
// log-probabilities.
void AppendFloat(float value, std::string& out);

}  // namespace vllm::server
