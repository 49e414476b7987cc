// Names, choices, and the whole way into the cache against a hub of the test's own that misbehaves
// on request.
#include "vllm/hub/hub.h"

#include <gtest/gtest.h>
#include <openssl/evp.h>

#include <filesystem>
#include <map>
#include <mutex>
#include <thread>

#include "base/os/file.h"
#include "base/strings.h"
#include "net/net_testing.h"
#include "vllm/hub/choose.h"

namespace vllm::hub {
namespace {

namespace fs = std::filesystem;
using base::Code;
using net::testing::CannedServer;

std::string Hex(const EVP_MD* kind, const std::string& text) {
  unsigned char bytes[EVP_MAX_MD_SIZE];
  unsigned size = 0;
  EVP_Digest(text.data(), text.size(), bytes, &size, kind, nullptr);
  std::string out;
  for (unsigned i = 0; i < size; ++i) out += fmt::format("{:02x}", bytes[i]);
  return out;
}
std::string Sha256(const std::string& text) { return Hex(EVP_sha256(), text); }
std::string GitSha1(const std::string& text) {
  std::string blob = fmt::format("blob {}", text.size());
  blob += '\0';
  return Hex(EVP_sha1(), blob + text);
}

const std::string kCommit(40, 'a');
const std::string kOther(40, 'b');

class HubTest : public ::testing::Test {
 protected:
  HubTest()
      : cdn_([this](const std::string& r) { return Cdn(r); }),
        hub_([this](const std::string& r) { return Respond(r); }) {
    std::string pattern = (fs::temp_directory_path() / "hub_test_XXXXXX").string();
    folder_ = ::mkdtemp(pattern.data());
    options_.endpoint = fmt::format("http://127.0.0.1:{}", hub_.port());
    options_.cache_folder = folder_ + "/hub";
    options_.wait = [this](double seconds) { waits_.push_back(seconds); };
    options_.warn = [this](const std::string& text) { warnings_.push_back(text); };
  }
  ~HubTest() override {
    std::error_code ec;
    fs::remove_all(folder_, ec);
  }

  static std::string Answer(int status, std::string_view body, std::string_view headers = "") {
    return fmt::format("HTTP/1.1 {} X\r\nContent-Length: {}\r\n{}\r\n{}", status, body.size(),
                       headers, body);
  }

  // The hub: its API, small files, and redirects to the other host for large ones.
  std::string Respond(const std::string& request) {
    std::lock_guard lock(mutex_);
    requests_.push_back(request);
    if (down_) return "";
    if (!refusal_.empty()) return std::exchange(refusal_, refusal_again_);
    const std::string target = request.substr(request.find(' ') + 1);
    const std::string path = target.substr(0, target.find(' '));
    if (base::StartsWith(path, "/api/models/org/name/revision/")) {
      ++listings_;
      return Answer(200, listing_.empty() ? Listing() : listing_);
    }
    const std::string prefix = "/org/name/resolve/" + commit_ + "/";
    const std::string file = base::StartsWith(path, prefix) ? path.substr(prefix.size()) : "";
    if (!files_.contains(file)) return Answer(404, "", "X-Error-Code: EntryNotFound\r\n");
    const std::string& text = files_[file];
    if (!IsLarge(file)) return Answer(200, text, "ETag: \"" + GitSha1(text) + "\"\r\n");
    return Answer(302, "",
                  fmt::format("Location: http://127.0.0.1:{}/{}\r\nX-Linked-ETag: \"{}\"\r\n"
                              "X-Linked-Size: {}\r\nETag: \"no\"\r\n",
                              cdn_.port(), file, Sha256(text), text.size()));
  }

  // Where large files are. `cuts_`: after how many bytes the next answers break off.
  std::string Cdn(const std::string& request) {
    std::lock_guard lock(mutex_);
    cdn_requests_.push_back(request);
    const std::string file = request.substr(5, request.find(' ', 5) - 5);
    std::string text = wrong_.contains(file) ? wrong_[file] : files_[file];
    const size_t whole = text.size();
    std::string head = "HTTP/1.1 200 OK\r\n";
    const size_t range = request.find("Range: bytes=");
    if (range != std::string::npos && ranges_) {
      const auto from = static_cast<size_t>(std::atoll(request.c_str() + range + 13));
      if (from >= whole) return Answer(416, "");
      text.erase(0, from);
      head = fmt::format("HTTP/1.1 206 X\r\nContent-Range: bytes {}-{}/{}\r\n", from, whole - 1,
                         whole);
    }
    head += fmt::format("Content-Length: {}\r\n\r\n", text.size());
    if (!cuts_.empty()) {
      text = text.substr(0, cuts_.front());
      cuts_.erase(cuts_.begin());
    }
    return head + text;
  }

  static bool IsLarge(const std::string& file) {
    return base::EndsWith(file, ".gguf") || base::EndsWith(file, ".safetensors");
  }

  std::string Listing() {
    std::string out;
    for (const auto& [name, text] : files_) {
      out += fmt::format("{}{{\"rfilename\":\"{}\"", out.empty() ? "" : ",", name);
      if (describes_ && IsLarge(name)) {
        out +=
            fmt::format(",\"size\":{},\"blobId\":\"{}\",\"lfs\":{{\"sha256\":\"{}\",\"size\":{}}}",
                        text.size(), GitSha1("pointer"), Sha256(text), text.size());
      } else if (describes_) {
        out += fmt::format(",\"size\":{},\"blobId\":\"{}\"", text.size(), GitSha1(text));
      }
      out += "}";
    }
    return fmt::format("{{\"id\":\"org/name\",\"sha\":\"{}\",\"siblings\":[{}]}}", commit_, out);
  }

  void AddSafetensors() {
    files_["config.json"] = "{}";
    files_["tokenizer.json"] = "{\"t\":1}";
    files_["model.safetensors"] = std::string(300000, 'w');
    files_["README.md"] = "read me";
    files_["onnx/model.onnx"] = "other";
  }

  std::string Root() const { return folder_ + "/hub/models--org--name"; }
  std::string Read(const std::string& path) {
    auto text = base::os::ReadFile(path);
    return text.ok() ? *text : "<" + text.error().message + ">";
  }
  // Expects an error with all of `words`.
  void ExpectError(const base::Result<std::string>& result, Code code,
                   std::initializer_list<std::string> words) {
    ASSERT_FALSE(result.ok()) << *result;
    EXPECT_EQ(static_cast<int>(result.error().code), static_cast<int>(code));
    for (const std::string& word : words)
      EXPECT_NE(result.error().message.find(word), std::string::npos) << result.error().message;
  }

  std::mutex mutex_;
  std::map<std::string, std::string> files_, wrong_;
  std::string commit_ = kCommit, listing_, refusal_, refusal_again_;
  bool describes_ = true, ranges_ = true, down_ = false;
  std::vector<size_t> cuts_;
  std::vector<std::string> requests_, cdn_requests_, warnings_;
  std::vector<double> waits_;
  int listings_ = 0;
  std::string folder_;
  HubOptions options_;
  CannedServer cdn_, hub_;
};

TEST_F(HubTest, FillsTheStandardLayout) {
  AddSafetensors();
  files_["1_Pooling/config.json"] = "{\"p\":1}";
  files_["generation_config.json"] = "{}";  // the same content as config.json, counted once
  uint64_t done = 0, total = 0;
  options_.progress = [&](const Progress& p) {
    EXPECT_GE(p.done, done);
    done = p.done;
    total = p.total;
  };
  auto path = Resolve("org/name", options_);
  ASSERT_TRUE(path.ok()) << path.error().message;
  EXPECT_EQ(*path, Root() + "/snapshots/" + kCommit);
  EXPECT_EQ(Read(Root() + "/refs/main"), kCommit);
  EXPECT_EQ(Read(*path + "/model.safetensors"), files_["model.safetensors"]);
  EXPECT_EQ(fs::read_symlink(*path + "/model.safetensors"),
            "../../blobs/" + Sha256(files_["model.safetensors"]));
  EXPECT_EQ(fs::read_symlink(*path + "/config.json"), "../../blobs/" + GitSha1("{}"));
  EXPECT_EQ(fs::read_symlink(*path + "/1_Pooling/config.json"),
            "../../../blobs/" + GitSha1("{\"p\":1}"));
  EXPECT_FALSE(fs::exists(*path + "/README.md"));
  EXPECT_FALSE(fs::exists(*path + "/onnx"));
  EXPECT_EQ(done, total);
  EXPECT_EQ(total, 2u + 7 + 7 + 300000);
  for (const auto& blob : fs::directory_iterator(Root() + "/blobs"))
    EXPECT_EQ(blob.path().extension(), "");
}

TEST_F(HubTest, AsksOnceForABranchAndNeverForACachedCommit) {
  AddSafetensors();
  ASSERT_TRUE(Resolve("org/name", options_).ok());
  requests_.clear();
  auto path = Resolve("org/name", options_);
  ASSERT_TRUE(path.ok());
  EXPECT_EQ(requests_.size(), 1u);
  options_.revision = kCommit;
  auto same = Resolve("org/name", options_);
  ASSERT_TRUE(same.ok());
  EXPECT_EQ(*same, *path);
  EXPECT_EQ(requests_.size(), 1u);
  EXPECT_TRUE(warnings_.empty());
}

TEST_F(HubTest, GoesOnWithTheCacheWhenTheHubCannotBeReached) {
  AddSafetensors();
  auto first = Resolve("org/name", options_);
  ASSERT_TRUE(first.ok());
  down_ = true;
  auto path = Resolve("org/name", options_);
  ASSERT_TRUE(path.ok()) << path.error().message;
  EXPECT_EQ(*path, *first);
  ASSERT_EQ(warnings_.size(), 1u);
  EXPECT_NE(warnings_[0].find("cache"), std::string::npos);
  options_.revision = "other";
  EXPECT_FALSE(Resolve("org/name", options_).ok());
}

TEST_F(HubTest, MistralsOwnTokenizerFileCompletesAModel) {
  AddSafetensors();
  files_["tekken.json"] = files_["tokenizer.json"];
  files_.erase("tokenizer.json");
  ASSERT_TRUE(Resolve("org/name", options_).ok());
  options_.offline = true;
  const auto path = Resolve("org/name", options_);
  ASSERT_TRUE(path.ok()) << path.error().message;
  EXPECT_TRUE(fs::exists(*path + "/tekken.json"));
}

TEST_F(HubTest, OfflineAsksNobody) {
  AddSafetensors();
  options_.offline = true;
  ExpectError(Resolve("org/name", options_), Code::kNotFound, {"org/name", "HF_HUB_OFFLINE"});
  options_.offline = false;
  auto path = Resolve("org/name", options_);
  ASSERT_TRUE(path.ok());
  requests_.clear();
  options_.offline = true;
  auto again = Resolve("org/name", options_);
  ASSERT_TRUE(again.ok());
  EXPECT_EQ(*again, *path);
  fs::remove(*path + "/model.safetensors");
  EXPECT_FALSE(Resolve("org/name", options_).ok());
  EXPECT_TRUE(requests_.empty());
}

TEST_F(HubTest, ANewCommitFetchesOnlyWhatChanged) {
  AddSafetensors();
  ASSERT_TRUE(Resolve("org/name", options_).ok());
  commit_ = kOther;
  files_["config.json"] = "{\"new\":1}";
  cdn_requests_.clear();
  auto path = Resolve("org/name", options_);
  ASSERT_TRUE(path.ok()) << path.error().message;
  EXPECT_EQ(*path, Root() + "/snapshots/" + kOther);
  EXPECT_EQ(Read(*path + "/config.json"), "{\"new\":1}");
  EXPECT_EQ(Read(Root() + "/snapshots/" + kCommit + "/config.json"), "{}");
  EXPECT_TRUE(cdn_requests_.empty());
  EXPECT_EQ(Read(Root() + "/refs/main"), kOther);
}

TEST_F(HubTest, ResumesWhereADownloadBroke) {
  AddSafetensors();
  cuts_ = {1000, 0, 200000};
  auto path = Resolve("org/name", options_);
  ASSERT_TRUE(path.ok()) << path.error().message;
  EXPECT_EQ(Read(*path + "/model.safetensors"), files_["model.safetensors"]);
  ASSERT_EQ(cdn_requests_.size(), 4u);
  EXPECT_EQ(cdn_requests_[0].find("Range:"), std::string::npos);
  EXPECT_NE(cdn_requests_[1].find("Range: bytes=1000-\r\n"), std::string::npos);
  EXPECT_NE(cdn_requests_[2].find("Range: bytes=1000-\r\n"), std::string::npos);
  EXPECT_NE(cdn_requests_[3].find("Range: bytes=201000-\r\n"), std::string::npos);
  EXPECT_EQ(waits_, (std::vector<double>{1, 2, 1}));
}

TEST_F(HubTest, ResumesInALaterCallAndGivesUpInTime) {
  AddSafetensors();
  cuts_ = {5000, 0, 0, 0, 0, 0, 0};
  ExpectError(Resolve("org/name", options_), Code::kUnavailable, {"broke after 0 of 295000 bytes"});
  EXPECT_EQ(waits_, (std::vector<double>{1, 2, 4, 8}));
  EXPECT_FALSE(fs::exists(Root() + "/refs/main"));
  cuts_.clear();
  cdn_requests_.clear();
  ASSERT_TRUE(Resolve("org/name", options_).ok());
  ASSERT_EQ(cdn_requests_.size(), 1u);
  EXPECT_NE(cdn_requests_[0].find("Range: bytes=5000-\r\n"), std::string::npos);
}

TEST_F(HubTest, BeginsAgainWhereAServerDoesNotResume) {
  AddSafetensors();
  cuts_ = {5000};
  ranges_ = false;
  auto path = Resolve("org/name", options_);
  ASSERT_TRUE(path.ok()) << path.error().message;
  EXPECT_EQ(Read(*path + "/model.safetensors"), files_["model.safetensors"]);
}

TEST_F(HubTest, WhatWasLeftFromOtherContentIsThrownAway) {
  AddSafetensors();
  const std::string blob = Root() + "/blobs/" + Sha256(files_["model.safetensors"]);
  fs::create_directories(Root() + "/blobs");
  for (const std::string& rest :
       {std::string(1234, 'x'), std::string(300000, 'x'), std::string(400000, 'w')}) {
    fs::remove(blob);
    fs::remove_all(Root() + "/snapshots");
    ASSERT_TRUE(base::os::WriteFile(blob + ".incomplete", rest).ok());
    auto path = Resolve("org/name", options_);
    ASSERT_TRUE(path.ok()) << path.error().message;
    EXPECT_EQ(Read(*path + "/model.safetensors"), files_["model.safetensors"]);
  }
}

TEST_F(HubTest, RefusesFilesThatAreNotWhatTheHubAnnounced) {
  AddSafetensors();
  wrong_["model.safetensors"] = std::string(300000, 'v');
  ExpectError(Resolve("org/name", options_), Code::kCorrupt,
              {"model.safetensors", "checksum", Sha256(files_["model.safetensors"])});
  wrong_["model.safetensors"] = std::string(300001, 'w');
  ExpectError(Resolve("org/name", options_), Code::kCorrupt, {"more than the 300000 bytes"});
  wrong_["model.safetensors"] = std::string(299999, 'w');
  ExpectError(Resolve("org/name", options_), Code::kUnavailable, {"299999 of 300000"});
  EXPECT_FALSE(fs::exists(Root() + "/refs/main"));
  EXPECT_FALSE(fs::exists(Root() + "/snapshots/" + kCommit + "/model.safetensors"));
  wrong_.clear();
  EXPECT_TRUE(Resolve("org/name", options_).ok());
}

TEST_F(HubTest, AsksForHashesThatTheListingLacks) {
  AddSafetensors();
  describes_ = false;
  auto path = Resolve("org/name", options_);
  ASSERT_TRUE(path.ok()) << path.error().message;
  EXPECT_EQ(fs::read_symlink(*path + "/model.safetensors"),
            "../../blobs/" + Sha256(files_["model.safetensors"]));
}

TEST_F(HubTest, TheTokenStaysWithTheHub) {
  AddSafetensors();
  options_.token = "hf_secret";
  ASSERT_TRUE(Resolve("org/name", options_).ok());
  for (const std::string& request : requests_)
    EXPECT_NE(request.find("Authorization: Bearer hf_secret"), std::string::npos);
  ASSERT_FALSE(cdn_requests_.empty());
  for (const std::string& request : cdn_requests_)
    EXPECT_EQ(request.find("hf_secret"), std::string::npos);
}

TEST_F(HubTest, SaysWhyTheHubRefuses) {
  struct Case {
    int status;
    std::string headers;
    Code code;
    std::string word;
  };
  const Case cases[] = {
      {401, "", Code::kUnavailable, "does not exist or is private"},
      {401, "X-Error-Code: GatedRepo\r\n", Code::kUnavailable, "is gated"},
      {403, "X-Error-Code: GatedRepo\r\n", Code::kUnavailable, "accept its terms"},
      {404, "X-Error-Code: RepoNotFound\r\n", Code::kNotFound, "check its name"},
      {404, "X-Error-Code: RevisionNotFound\r\n", Code::kNotFound, "no revision 'main'"},
      {429, "Retry-After: 3600\r\n", Code::kUnavailable, "in 3600 seconds"},
      {500, "", Code::kUnavailable, "status 500"},
  };
  AddSafetensors();
  for (const Case& c : cases) {
    refusal_ = refusal_again_ = Answer(c.status, "no", c.headers);
    ExpectError(Resolve("org/name", options_), c.code, {c.word});
  }
}

TEST_F(HubTest, WaitsAsLongAsItIsAskedTo) {
  AddSafetensors();
  refusal_ = Answer(429, "", "Retry-After: 7\r\n");
  auto path = Resolve("org/name", options_);
  ASSERT_TRUE(path.ok()) << path.error().message;
  EXPECT_EQ(waits_, (std::vector<double>{7}));
}

TEST_F(HubTest, DistrustsTheHubsAnswer) {
  AddSafetensors();
  for (const std::string file :
       {"../x.json", "/etc/x.json", "a/../../x", "a//b", "", "a\\\\b", "./a"}) {
    listing_ =
        fmt::format("{{\"sha\":\"{}\",\"siblings\":[{{\"rfilename\":\"{}\"}}]}}", kCommit, file);
    ExpectError(Resolve("org/name", options_), Code::kCorrupt, {"org/name", "file name"});
  }
  for (const std::string& text :
       {std::string("[]"), std::string("{"), std::string("<html>"), std::string("{}"),
        std::string("{\"sha\":\"../../x\",\"siblings\":[]}"), std::string("{\"sha\":1}"),
        "{\"sha\":\"" + kCommit + "\"}", "{\"sha\":\"" + kCommit + "\",\"siblings\":[1]}",
        "{\"sha\":\"" + kCommit + "\",\"siblings\":[{\"rfilename\":\"a.gguf\",\"size\":\"x\"}]}"}) {
    listing_ = text;
    ExpectError(Resolve("org/name", options_), Code::kCorrupt, {"org/name"});
  }
  EXPECT_FALSE(fs::exists(folder_ + "/hub"));
}

TEST_F(HubTest, FetchesTheQuantThatIsAskedFor) {
  files_["m-Q4_K_M.gguf"] = std::string(1000, '4');
  files_["m-Q8_0-00001-of-00002.gguf"] = std::string(1000, '8');
  files_["m-Q8_0-00002-of-00002.gguf"] = std::string(1000, '9');
  auto path = Resolve("org/name:q8_0", options_);
  ASSERT_TRUE(path.ok()) << path.error().message;
  EXPECT_EQ(*path, Root() + "/snapshots/" + kCommit + "/m-Q8_0-00001-of-00002.gguf");
  EXPECT_EQ(Read(Root() + "/snapshots/" + kCommit + "/m-Q8_0-00002-of-00002.gguf"),
            files_["m-Q8_0-00002-of-00002.gguf"]);
  EXPECT_FALSE(fs::exists(Root() + "/snapshots/" + kCommit + "/m-Q4_K_M.gguf"));
  ExpectError(Resolve("org/name", options_), Code::kInvalidArgument,
              {"m-Q4_K_M.gguf", "m-Q8_0.gguf"});
  ExpectError(Resolve("org/name:Q5_0", options_), Code::kNotFound, {"Q5_0", "m-Q4_K_M.gguf"});
}

TEST_F(HubTest, TwoAtOnceFetchOnce) {
  AddSafetensors();
  std::vector<std::string> paths(4);
  std::vector<std::thread> threads;
  for (std::string& path : paths) {
    threads.emplace_back([&] {
      HubOptions options = options_;
      options.wait = nullptr;
      auto got = Resolve("org/name", options);
      path = got.ok() ? *got : got.error().message;
    });
  }
  for (auto& t : threads) t.join();
  for (const std::string& path : paths) EXPECT_EQ(path, Root() + "/snapshots/" + kCommit);
  EXPECT_EQ(cdn_requests_.size(), 1u);
}

TEST_F(HubTest, APathThatExistsWins) {
  fs::create_directories(folder_ + "/org/name");
  auto path = Resolve(folder_ + "/org/name", options_);
  ASSERT_TRUE(path.ok());
  EXPECT_EQ(*path, folder_ + "/org/name");
  EXPECT_TRUE(requests_.empty());
  ExpectError(Resolve(folder_ + "/none", options_), Code::kInvalidArgument, {"/none", "org/name"});
  options_.revision = "../../x";
  ExpectError(Resolve("org/name", options_), Code::kInvalidArgument, {"revision"});
}

TEST_F(HubTest, SaysThatTheDiskCannotHoldIt) {
  listing_ = fmt::format(
      "{{\"sha\":\"{}\",\"siblings\":[{{\"rfilename\":\"a.gguf\",\"lfs\":{{\"sha256\":"
      "\"{}\",\"size\":4611686018427387904}}}}]}}",
      kCommit, std::string(64, 'c'));
  ExpectError(Resolve("org/name", options_), Code::kResourceExhausted, {"make room"});
}

// ---- names

TEST(ModelName, TellsNamesFromPaths) {
  auto name = ParseName("Qwen/Qwen3-0.6B_x:Q4_K_M");
  ASSERT_TRUE(name.ok());
  EXPECT_EQ(name->repository, "Qwen/Qwen3-0.6B_x");
  EXPECT_EQ(name->quant, "Q4_K_M");
  EXPECT_TRUE(ParseName("a/b").ok());
  EXPECT_TRUE(ParseName("a/b:sub/m-Q4_0.gguf").ok());
  for (const char* bad : {"", "gpt2", "a/b/c", "/a/b", "./a", "../b", "a/..", "a/b:", "a/b c",
                          "~/m", "a/b:../x", "a--b/c", "a/b.", "a/-b", "a/b\n", "http://x/y"}) {
    EXPECT_FALSE(ParseName(bad).ok()) << bad;
  }
}

// What is chosen, as one string; the error's sentence where nothing is.
std::string Chosen(const std::string& quant, const std::vector<std::string>& files) {
  auto choice = ChooseFiles({"o/n", quant}, files);
  if (!choice) return choice.error().message;
  std::string out = choice->entry + " <";
  for (const std::string& file : choice->files) out += " " + file;
  return out;
}

TEST(ChooseFiles, TakesOneCopyOfTheWeightsAndWhatDescribesThem) {
  EXPECT_EQ(Chosen("", {"README.md", "config.json", "consolidated.safetensors", "model.safetensors",
                        "original/model.safetensors", "pytorch_model.bin",
                        "pytorch_model.bin.index.json", "tokenizer.model", "a.png"}),
            " < config.json tokenizer.model model.safetensors");
  EXPECT_EQ(Chosen("", {"config.json", "model-00001-of-00002.safetensors",
                        "model-00002-of-00002.safetensors", "model.safetensors.index.json"}),
            " < config.json model.safetensors.index.json model-00001-of-00002.safetensors "
            "model-00002-of-00002.safetensors");
  EXPECT_EQ(Chosen("", {"model-00001-of-00002.safetensors"}),
            "o/n: model-00002-of-00002.safetensors is missing");
  EXPECT_EQ(Chosen("", {"weights.safetensors", "x.gguf"}), " < weights.safetensors");
}

TEST(ChooseFiles, MatchesQuantsAsWholeWords) {
  const std::vector<std::string> files = {"imatrix.gguf",    "m-IQ4_XS.gguf",     "m-Q4_K_M.gguf",
                                          "m-Q4_K_S.gguf",   "m-UD-Q4_K_XL.gguf", "m.Q6_K.gguf",
                                          "mmproj-F16.gguf", "m-F16.gguf"};
  EXPECT_EQ(Chosen("Q4_K_M", files), "m-Q4_K_M.gguf < m-Q4_K_M.gguf");
  EXPECT_EQ(Chosen("q6_k", files), "m.Q6_K.gguf < m.Q6_K.gguf");
  EXPECT_EQ(Chosen("F16", files), "m-F16.gguf < m-F16.gguf");
  EXPECT_EQ(Chosen("Q4_K_XL", files), "m-UD-Q4_K_XL.gguf < m-UD-Q4_K_XL.gguf");
  EXPECT_EQ(Chosen("mmproj-F16.gguf", files), "mmproj-F16.gguf < mmproj-F16.gguf");
  EXPECT_NE(Chosen("Q4_K", files).find("no .gguf of 'Q4_K'"), std::string::npos);
  EXPECT_NE(Chosen("Q4", files).find("no .gguf of 'Q4'"), std::string::npos);
  EXPECT_EQ(Chosen("", {"m-Q8_0.gguf", "mmproj-F16.gguf"}), "m-Q8_0.gguf < m-Q8_0.gguf");
  EXPECT_EQ(Chosen("Q8_0", {"Q8_0/m-00001-of-00002.gguf", "Q8_0/m-00002-of-00002.gguf"}),
            "Q8_0/m-00001-of-00002.gguf < Q8_0/m-00001-of-00002.gguf Q8_0/m-00002-of-00002.gguf");
  EXPECT_EQ(Chosen("Q8_0", {"m-Q8_0-00001-of-00003.gguf", "m-Q8_0-00003-of-00003.gguf"}),
            "o/n: m-Q8_0-00002-of-00003.gguf is missing");
  EXPECT_NE(Chosen("", {"README.md"}).find("neither .safetensors nor .gguf"), std::string::npos);
}

TEST(HubOptions, ComeFromTheEnvironment) {
  std::map<std::string, std::string> environment = {{"HOME", "/h"}};
  const auto get = [&](const char* name) -> const char* {
    const auto it = environment.find(name);
    return it == environment.end() ? nullptr : it->second.c_str();
  };
  HubOptions options = FromEnvironment(get);
  EXPECT_EQ(options.endpoint, "https://huggingface.co");
  EXPECT_EQ(options.cache_folder, "/h/.cache/huggingface/hub");
  EXPECT_FALSE(options.offline);
  environment["HF_HOME"] = "~/hf";
  environment["HF_ENDPOINT"] = "https://mirror.example/";
  environment["HF_TOKEN"] = " hf_x\n";
  environment["HF_HUB_OFFLINE"] = "1";
  options = FromEnvironment(get);
  EXPECT_EQ(options.cache_folder, "/h/hf/hub");
  EXPECT_EQ(options.endpoint, "https://mirror.example");
  EXPECT_EQ(options.token, "hf_x");
  EXPECT_TRUE(options.offline);
  environment["HF_HUB_CACHE"] = "/c";
  EXPECT_EQ(FromEnvironment(get).cache_folder, "/c");
}

}  // namespace
}  // namespace vllm::hub
