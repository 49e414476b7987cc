#include "vllm/text/chat_template.h"

#include <gtest/gtest.h>

namespace vllm::text {
namespace {
TEST(ChatTemplate, Placeholder) { EXPECT_TRUE(ChatTemplate::Parse("{{ 1 }}", "x")); }
}  // namespace
}  // namespace vllm::text
