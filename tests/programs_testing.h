// Runs the programs as their users do, for tests of what they print and how they end.
#pragma once

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>

#include "base/os/file.h"

namespace tests {

struct Ended {
  int code = -1;
  std::string out, err;
};

// With a folder of its own that is removed at the end.
class ProgramsTest : public testing::Test {
 protected:
  void SetUp() override {
    folder_ =
        std::filesystem::temp_directory_path() / ("vllm_programs_" + std::to_string(::getpid()));
    std::filesystem::create_directories(folder_);
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  std::string Path(const std::string& name) const { return (folder_ / name).string(); }
  std::string Write(const std::string& name, std::string_view text) const {
    std::filesystem::create_directories((folder_ / name).parent_path());
    std::ofstream(folder_ / name, std::ios::binary) << text;
    return Path(name);
  }

  // Runs `program arguments` in a shell; two minutes at the most.
  Ended Run(const std::string& command) const {
    const std::string err = Path("stderr");
    FILE* pipe = ::popen(
        ("timeout 120 " VLLM_BINARY_DIR "/examples/" + command + " 2>" + err + " </dev/null")
            .c_str(),
        "r");
    Ended ended;
    char buffer[4096];
    for (size_t n; (n = std::fread(buffer, 1, sizeof buffer, pipe)) > 0;)
      ended.out.append(buffer, n);
    const int status = ::pclose(pipe);
    ended.code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    ended.err = *base::os::ReadFile(err);
    return ended;
  }

  // Ends with `code` after one line on stderr that has `words`.
  void Refused(const std::string& command, int code, const std::string& words) const {
    const Ended e = Run(command);
    EXPECT_EQ(e.code, code) << command << "\n" << e.err;
    EXPECT_NE(e.err.find(words), std::string::npos)
        << command << "\nwanted '" << words << "' in: " << e.err;
    EXPECT_EQ(std::count(e.err.begin(), e.err.end(), '\n'), 1) << command << "\n" << e.err;
  }

  std::filesystem::path folder_;
};

}  // namespace tests
