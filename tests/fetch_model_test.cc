// tools/fetch_model.sh with a stand-in for python3 and pip: whatever goes wrong is one sentence and
// status 1, and only a file whose sha256 was right is ever taken for the model.
#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/wait.h>

#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>

namespace {

namespace fs = std::filesystem;

constexpr const char* kFile = "SmolLM2-135M-Instruct.Q4_1.gguf";
constexpr const char* kSum = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53";

std::string Read(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  std::ostringstream text;
  text << in.rdbuf();
  return text.str();
}

void Write(const fs::path& path, const std::string& text) {
  std::ofstream(path, std::ios::binary) << text;
}

class FetchModel : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string name = (fs::temp_directory_path() / "fetch_model_test.XXXXXX").string();
    ASSERT_NE(mkdtemp(name.data()), nullptr);
    folder_ = name;
    cache_ = folder_ / "vllm.cpp";
    fs::create_directories(folder_ / "bin");
    fs::create_directories(cache_);
  }
  void TearDown() override { fs::remove_all(folder_); }

  // `download` and `unpack` are shell commands; unpack's target is $2.
  void Python(const std::string& download, const std::string& unpack) {
    const fs::path python = folder_ / "bin" / "python3";
    Write(python, "#!/bin/sh\ncase \"$*\" in\n*'pip --version'*) exit 0 ;;\n*download*) " +
                      download + " ;;\n-c*) shift; " + unpack + " ;;\nesac\n");
    fs::permissions(python, fs::perms::owner_all);
  }

  // Exit status; standard output and error are left in out_ and err_.
  int Run(const std::string& model = "smollm2") {
    const std::string command =
        "PATH='" + (folder_ / "bin").string() + "':\"$PATH\" XDG_CACHE_HOME='" + folder_.string() +
        "' bash '" VLLM_SOURCE_DIR "/tools/fetch_model.sh' " + model + " >'" +
        (folder_ / "out").string() + "' 2>'" + (folder_ / "err").string() + "'";
    const int status = std::system(command.c_str());
    out_ = Read(folder_ / "out");
    err_ = Read(folder_ / "err");
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  }

  // Nothing may be left in the cache but the lock.
  void ExpectEmptyCache() {
    for (const auto& entry : fs::directory_iterator(cache_))
      EXPECT_EQ(entry.path().filename(), ".lock");
  }

  // The last line on standard error, which must be the only sentence beside the announcement of the
  // download.
  std::string Sentence() {
    std::istringstream in(err_);
    std::string line, last;
    int sentences = 0;
    while (std::getline(in, line)) {
      if (line.rfind("fetch_model: getting ", 0) == 0) continue;
      last = line;
      ++sentences;
    }
    EXPECT_EQ(sentences, 1) << err_;
    return last;
  }

  fs::path folder_, cache_;
  std::string out_, err_;
};

TEST_F(FetchModel, NoNetworkIsOneSentence) {
  Python("echo 'WARNING: Retrying after NewConnectionError' >&2; exit 1", "exit 1");
  EXPECT_EQ(Run(), 1);
  EXPECT_NE(Sentence().find("check the network"), std::string::npos) << err_;
  EXPECT_EQ(out_, "");
  ExpectEmptyCache();
}

TEST_F(FetchModel, AFullDiskIsOneSentence) {
  Python("echo 'OSError: [Errno 28] No space left on device' >&2; exit 1", "exit 1");
  EXPECT_EQ(Run(), 1);
  EXPECT_NE(Sentence().find("is full"), std::string::npos) << err_;
  ExpectEmptyCache();

  Python("exit 0",
         "echo half >\"$2\"; echo 'OSError: [Errno 28] No space left on device' >&2; exit 1");
  EXPECT_EQ(Run(), 1);
  EXPECT_NE(Sentence().find("is full"), std::string::npos) << err_;
  ExpectEmptyCache();
}

TEST_F(FetchModel, AFailureWithoutAWordIsStillASentence) {
  Python("exit 1", "exit 1");
  EXPECT_EQ(Run(), 1);
  EXPECT_NE(Sentence().find("could not download"), std::string::npos) << err_;
  ExpectEmptyCache();
}

TEST_F(FetchModel, AWrongFileIsThrownAway) {
  Python("exit 0", "echo 'not the model' >\"$2\"");
  EXPECT_EQ(Run(), 1);
  EXPECT_NE(Sentence().find("wrong sha256"), std::string::npos) << err_;
  EXPECT_EQ(out_, "");
  ExpectEmptyCache();
}

TEST_F(FetchModel, ADamagedFileInTheCacheIsNotTaken) {
  // Half a file under the right name, with the stamp of another.
  Write(cache_ / kFile, "half");
  Write(cache_ / (std::string(kFile) + ".checked"), std::string("98362432 1 ") + kSum + "\n");
  Python("exit 1", "exit 1");
  EXPECT_EQ(Run(), 1);
  EXPECT_EQ(out_, "");
  EXPECT_NE(err_.find("is damaged"), std::string::npos) << err_;
}

TEST_F(FetchModel, AFileThatWasCheckedIsNotReadAgain) {
  // Size and time as in the stamp: believed without a look at the content, which is how a second
  // start stays quick.
  Write(cache_ / kFile, "content");
  const std::string touch = "touch -d @1000 '" + (cache_ / kFile).string() + "'";
  ASSERT_EQ(std::system(touch.c_str()), 0);
  Write(cache_ / (std::string(kFile) + ".checked"), std::string("7 1000 ") + kSum + "\n");
  Python("exit 1", "exit 1");
  EXPECT_EQ(Run(), 0) << err_;
  EXPECT_EQ(out_, (cache_ / kFile).string() + "\n");
  EXPECT_EQ(err_, "");
}

TEST_F(FetchModel, AnUnknownModelIsRefused) {
  EXPECT_EQ(Run("no-such-model"), 1);
  EXPECT_NE(Sentence().find("smollm2 or gemma3-270m"), std::string::npos) << err_;
}

}  // namespace
