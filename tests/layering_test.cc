#include "layering.h"

#include <gtest/gtest.h>

namespace layering {
namespace {

std::string Joined(const std::vector<std::string>& findings) {
  std::string out;
  for (const std::string& f : findings) out += "\n  " + f;
  return out;
}

TEST(Layering, EveryIncludeFollowsTheTable) {
  const Tree tree = ReadTree(VLLM_SOURCE_DIR, {"src", "apps"});
  ASSERT_GT(tree.size(), 20u) << "the sources were not found below " << VLLM_SOURCE_DIR;
  const std::vector<std::string> findings = CheckIncludes(tree);
  EXPECT_TRUE(findings.empty()) << Joined(findings);
}

TEST(Layering, NoFileIsLongerThan800Lines) {
  const Tree tree = ReadTree(VLLM_SOURCE_DIR, {"src", "apps", "tests", "fuzz"});
  const std::vector<std::string> findings = CheckLength(tree, 800);
  EXPECT_TRUE(findings.empty()) << Joined(findings);
}

// One file includes one header: what the checker says of it.
std::string Verdict(const std::string& file, const std::string& include_line) {
  const std::vector<std::string> findings = CheckIncludes({{file, include_line + "\n"}});
  return findings.empty() ? "" : findings[0];
}

TEST(Layering, RefusesWhatTheTableDoesNotList) {
  struct Case {
    const char* file;
    const char* include;
  };
  const Case planted[] = {
      {"src/base/a.cc", "vt/ir/graph.h"},          // base knows nobody
      {"src/vt/ir/a.cc", "vt/device/backend.h"},   // passes see only ir::Target
      {"src/vt/device/a.cc", "vt/cpu/kernels.h"},  // the seam knows no backend
      {"src/vt/cpu/a.cc", "vt/gpu/gpu.h"},         // backends never each other
      {"src/vt/gpu/a.cc", "vt/cpu/kernels.h"},
      {"src/vt/cpu/a.cc", "vllm/engine/request.h"},      // the runtime knows no requests
      {"src/vllm/weights/a.cc", "vt/device/backend.h"},  // weights only parses
      {"src/vllm/models/a.cc", "vt/cpu/kernels.h"},
      {"src/vllm/models/a.cc", "vt/device/backend.h"},
      {"src/vllm/models/a.cc", "vllm/weights/gguf.h"},  // the configuration and names alone
      {"src/vllm/text/a.cc", "vllm/weights/gguf.h"},
      {"src/vllm/text/a.cc", "vllm/grammar/mask.h"},
      {"src/vllm/grammar/a.cc", "vllm/text/tokenizer.h"},
      {"src/vllm/engine/a.cc", "vllm/models/rope.h"},  // the registry alone
      {"src/vllm/engine/a.cc", "vt/cpu/kernels.h"},
      {"src/vllm/engine/a.cc", "vllm/server/http.h"},
      {"src/vllm/server/a.cc", "vt/ir/graph.h"},
      {"src/vllm/server/a.cc", "vllm/models/registry.h"},
      {"src/api/a.cc", "vt/device/backend.h"},
      {"src/base/a.cc", "apps/cli.h"},  // nothing includes apps
  };
  for (const Case& c : planted) {
    const std::string want = std::string(c.file) + ":1: ";
    EXPECT_EQ(Verdict(c.file, "#include \"" + std::string(c.include) + "\"").substr(0, want.size()),
              want)
        << c.file << " includes " << c.include;
  }
}

TEST(Layering, AcceptsWhatTheTableLists) {
  EXPECT_EQ(Verdict("src/vt/device/backend.h", "#include \"vt/ir/target.h\""), "");
  EXPECT_EQ(Verdict("src/vt/cpu/device.cc", "#include \"vt/device/backend.h\""), "");
  EXPECT_EQ(Verdict("src/vllm/models/llama.cc", "#include \"vllm/weights/config.h\""), "");
  EXPECT_EQ(Verdict("src/vllm/engine/engine.cc", "#include \"vllm/models/registry.h\""), "");
  EXPECT_EQ(Verdict("src/vllm/text/tokenizer.cc", "#include \"base/result.h\""), "");
  EXPECT_EQ(Verdict("apps/cli.cc", "#include \"vt/cpu/kernels.h\""), "");
  EXPECT_EQ(Verdict("src/vt/ir/graph.cc", "#include <boost/json/value.hpp>"), "");
}

TEST(Layering, SeesIncludesInEverySpelling) {
  EXPECT_NE(Verdict("src/vt/ir/a.cc", "#include <vt/device/backend.h>"), "");
  EXPECT_NE(Verdict("src/vt/ir/a.cc", "  #  include\t\"vt/device/backend.h\"  // why"), "");
  EXPECT_EQ(Verdict("src/vt/ir/a.cc", "// #include \"vt/device/backend.h\""), "");
  // By way of a relative path.
  const Tree tree = {{"src/vt/ir/a.cc", "int x;\n#include \"../device/backend.h\"\n"},
                     {"src/vt/device/backend.h", ""}};
  EXPECT_EQ(
      CheckIncludes(tree),
      std::vector<std::string>{"src/vt/ir/a.cc:2: vt/ir/ may not include vt/device/backend.h"});
  // A name that is no file of the project hides where it comes from.
  EXPECT_NE(Verdict("src/vt/ir/a.cc", "#include \"somewhere.h\""), "");
}

TEST(Layering, KeepsModelFamiliesApart) {
  const std::string registration = "VLLM_MODEL_FAMILY(x, Build, \"x\")\n";
  Tree tree = {{"src/vllm/models/llama.h", ""},
               {"src/vllm/models/llama.cc", "#include \"vllm/models/llama.h\"\n" + registration},
               {"src/vllm/models/parts.h", ""},
               {"src/vllm/models/gemma.cc", "#include \"vllm/models/parts.h\"\n" + registration}};
  EXPECT_EQ(Joined(CheckIncludes(tree)), "");
  tree["src/vllm/models/gemma.cc"] = "#include \"vllm/models/llama.h\"\n" + registration;
  ASSERT_EQ(CheckIncludes(tree).size(), 1u);
  EXPECT_EQ(CheckIncludes(tree)[0].substr(0, 27), "src/vllm/models/gemma.cc:1:");
}

TEST(Layering, RefusesFilesOfNoRoom) {
  EXPECT_NE(Verdict("src/utils/a.cc", ""), "");
  EXPECT_NE(Verdict("src/vt/a.cc", ""), "");
}

TEST(Layering, CountsLines) {
  std::string text;
  for (int i = 0; i < 800; ++i) text += "\n";
  EXPECT_TRUE(CheckLength({{"a.cc", text}}, 800).empty());
  EXPECT_EQ(CheckLength({{"a.cc", text + "x"}}, 800).size(),
            1u);  // a last line without a line break counts
}

}  // namespace
}  // namespace layering
