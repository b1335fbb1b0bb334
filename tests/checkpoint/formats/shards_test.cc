/// \file
/// A model in several files: which tensors go where, the index letter by letter, and every index
/// that is not one of its folder.
#include "checkpoint/formats/shards.h"

#include <filesystem>

#include <gmock/gmock.h>

#include "checkpoint/formats/format.h"
#include "tests/checkpoint/support.h"

namespace heddle::checkpoint {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

class ShardsTest : public ::testing::Test {
 protected:
  /// A sink for fp32 tensors of these names and lengths.
  Result<std::unique_ptr<TensorSink>> Create(
      const std::vector<std::pair<std::string, int64_t>>& tensors, int64_t max_shard_bytes) const {
    SinkRequest request;
    request.path = path_;
    request.config = "{}";
    request.max_shard_bytes = max_shard_bytes;
    for (const auto& [name, elements] : tensors) {
      request.tensors.push_back({.name = name, .role = "", .shape = {elements}});
    }
    return (*FindFormat("safetensors"))->create(std::move(request));
  }
  void Write(const std::vector<std::pair<std::string, int64_t>>& tensors, int64_t max) const {
    std::filesystem::remove_all(path_);
    auto sink = Create(tensors, max);
    ASSERT_TRUE(sink.ok()) << sink.status().ToString();
    for (const auto& [name, elements] : tensors) {
      const Bytes bytes(static_cast<size_t>(4 * elements), static_cast<std::byte>(name.front()));
      ASSERT_TRUE((*sink)->Append(bytes).ok()) << name;
    }
    ASSERT_TRUE((*sink)->Finish().ok());
  }
  std::vector<std::string> Files() const {
    std::vector<std::string> names;
    for (const auto& entry : std::filesystem::directory_iterator(path_)) {
      names.push_back(entry.path().filename().string());
    }
    std::sort(names.begin(), names.end());
    return names;
  }
  void SetIndex(const std::string& text) const {
    ASSERT_TRUE(WriteFileAtomically(index_, text).ok());
  }
  std::string Refusal() const { return std::string(OpenModel(path_).status().message()); }

  const TemporaryFolder folder_;
  const std::string path_ = folder_.path() + "/model";
  const std::string index_ = path_ + "/model.safetensors.index.json";
};

TEST_F(ShardsTest, TensorsFillShardsInTheirOrderAndTheIndexSaysWhere) {
  Write({{"a", 2}, {"e", 0}, {"b", 3}, {"c", 2}, {"d", 1}}, 20);
  EXPECT_THAT(Files(),
              ElementsAre("config.json", "model-00001-of-00002.safetensors",
                          "model-00002-of-00002.safetensors", "model.safetensors.index.json"));
  EXPECT_EQ(*ReadFile(path_ + "/config.json", 99), "{}");
  EXPECT_EQ(*ReadFile(index_, 1 << 20), R"({
  "metadata": {
    "total_size": 32
  },
  "weight_map": {
    "a": "model-00001-of-00002.safetensors",
    "b": "model-00001-of-00002.safetensors",
    "c": "model-00002-of-00002.safetensors",
    "d": "model-00002-of-00002.safetensors",
    "e": "model-00001-of-00002.safetensors"
  }
}
)");
  const auto model = OpenModel(path_);
  ASSERT_TRUE(model.ok()) << model.status().ToString();
  EXPECT_EQ((*model)->config(), "{}");
  EXPECT_EQ((*model)->format(), "safetensors");
  std::string names;
  for (size_t t = 0; t < (*model)->tensors().size(); ++t) {
    const FileTensor& tensor = (*model)->tensors()[t];
    names += tensor.name;
    Bytes out(static_cast<size_t>(tensor.bytes));
    ASSERT_TRUE((*model)->Read(t, WholeBox(tensor.shape), out).ok());
    EXPECT_EQ(out, Bytes(out.size(), static_cast<std::byte>(tensor.name.front())));
  }
  EXPECT_EQ(names, "abcde");
  Write({{"a", 2}, {"b", 3}}, 20);
  EXPECT_THAT(Files(), ElementsAre("config.json", "model.safetensors")) << "one needs no index";
}

TEST_F(ShardsTest, ASinkSaysHowManyShardsAreMissing) {
  const std::vector<std::pair<std::string, int64_t>> tensors = {{"a", 2}, {"b", 2}, {"c", 2}};
  const Bytes half(4);
  for (size_t pieces = 0; pieces < 6; ++pieces) {
    auto sink = Create(tensors, 8);
    ASSERT_TRUE(sink.ok()) << sink.status().ToString();
    for (size_t i = 0; i < pieces; ++i) {
      ASSERT_TRUE((*sink)->Append(half).ok());
    }
    const Status status = (*sink)->Finish();
    EXPECT_EQ(status.code(), StatusCode::kFailedPrecondition);
    const size_t missing = 3 - pieces / 2;
    EXPECT_EQ(status.message(),
              pieces < 5 ? fmt::format("{}: elements of {} shards are missing", path_, missing)
                         : "tensor 'c': elements are missing")
        << pieces;
  }
  EXPECT_EQ(Create({{"a", 1}, {"b", 1}, {"a", 1}}, 99).status().message(),
            "tensor 'a' is to be written twice");
}

TEST_F(ShardsTest, AnIndexIsOneOfItsFolder) {
  Write({{"a", 1}, {"b", 1}}, 4);
  const std::string first = path_ + "/model-00001-of-00002.safetensors";
  const std::string second = path_ + "/model-00002-of-00002.safetensors";
  const auto map = [](const std::string& content) { return R"({"weight_map": )" + content + "}"; };
  for (const char* const none :
       {"{}", "[]", R"({"weight_map": {}})", R"({"weight_map": []})", R"({"weight_map": "a"})"}) {
    SetIndex(none);
    EXPECT_EQ(Refusal(), index_ + ": has no weight_map with tensors") << none;
  }
  SetIndex("{");
  EXPECT_THAT(Refusal(), HasSubstr(index_ + ": not JSON"));
  for (const char* const file : {"7", "null", R"("../a")", R"("")", R"("..")"}) {
    SetIndex(map(fmt::format(R"({{"a": {}}})", file)));
    EXPECT_EQ(Refusal(), index_ + ": the file of tensor 'a' is not the name of a file beside it")
        << file;
  }
  SetIndex(map(R"({"a": "none.safetensors"})"));
  EXPECT_EQ(Refusal(), index_ + ": shard none.safetensors is missing");
  SetIndex(map(R"({"a": "model-00002-of-00002.safetensors"})"));
  EXPECT_EQ(Refusal(), second + ": has no tensor 'a', which " + index_ + " places there");
  SetIndex(map(R"({"a": "model-00001-of-00002.safetensors"})"));
  EXPECT_EQ(Refusal(), "") << "a part of a model is one";
  std::filesystem::copy_file(first, path_ + "/copy.safetensors");
  SetIndex(map(R"({"a": "model-00001-of-00002.safetensors", "b": "copy.safetensors"})"));
  EXPECT_EQ(Refusal(),
            path_ + "/copy.safetensors: has no tensor 'b', which " + index_ + " places there");
  std::filesystem::remove(second);
  std::filesystem::copy_file(first, second);
  std::filesystem::remove(path_ + "/copy.safetensors");
  SetIndex(map(R"({"a": "model-00001-of-00002.safetensors"})"));
  EXPECT_EQ(Refusal(), "");
  ASSERT_TRUE(WriteFileAtomically(first, "version https://git-lfs.github.com/spec/v1\n").ok());
  EXPECT_THAT(Refusal(), HasSubstr(first + ": a pointer of Git LFS"));
}

TEST_F(ShardsTest, AConfigThatCannotBeReadIsNeverPassedOver) {
  Write({{"a", 1}}, 1 << 20);
  const std::string config = path_ + "/config.json";
  const std::string pointer = "version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n";
  for (const auto& [text, what] : {std::pair(std::string(), "the file is empty"),
                                   {pointer, "a pointer of Git LFS"},
                                   {R"({"model_type": "llama", "vocab)", "not JSON"},
                                   {" ", "not JSON"},
                                   {"[1]", "expected an object"},
                                   {R"({"a": 1, "a": 2})", "key 'a' twice"},
                                   {"<!DOCTYPE html>", "a web page"}}) {
    ASSERT_TRUE(WriteFileAtomically(config, text).ok());
    EXPECT_THAT(Refusal(), HasSubstr(config + ": " + what));
  }
  ASSERT_TRUE(WriteFileAtomically(config, "{}").ok());
  EXPECT_EQ(Refusal(), "");
  std::filesystem::remove(config);
  EXPECT_EQ(Refusal(), "") << "a model may have none";
  std::filesystem::create_symlink("../blobs/none", config);
  EXPECT_THAT(Refusal(), HasSubstr(config)) << "the hub's cache without its blob";
  std::filesystem::remove(config);
  std::filesystem::create_directory(config);
  EXPECT_THAT(Refusal(), HasSubstr(config));
}

TEST_F(ShardsTest, AnIndexThatIsAPointerIsNamedForWhatItIs) {
  Write({{"a", 1}, {"b", 1}}, 4);
  SetIndex("version https://git-lfs.github.com/spec/v1\n");
  EXPECT_THAT(Refusal(), HasSubstr(index_ + ": a pointer of Git LFS"));
}

TEST_F(ShardsTest, ATensorInTwoFilesIsNamed) {
  Write({{"a", 1}, {"b", 1}}, 1 << 20);
  std::filesystem::copy_file(path_ + "/model.safetensors", path_ + "/1.safetensors");
  std::filesystem::rename(path_ + "/model.safetensors", path_ + "/2.safetensors");
  SetIndex(R"({"weight_map": {"a": "1.safetensors", "b": "2.safetensors"}})");
  EXPECT_EQ(Refusal(), path_ + ": tensor 'a' is in two files");
}

}  // namespace
}  // namespace heddle::checkpoint
