/// \file
/// How far long work says that it is: never back, and at the end exactly at its whole; and work
/// that fails in the middle.
#include <functional>

#include <gmock/gmock.h>

#include "checkpoint/convert/convert.h"
#include "checkpoint/convert/copy.h"
#include "checkpoint/convert/diff.h"
#include "tests/checkpoint/convert/memory_model.h"

namespace heddle::checkpoint {
namespace {

using ::testing::HasSubstr;

/// Writes fp32 tensors of these shapes with a number in front of their elements.
std::string WriteModel(const std::string& path,
                       const std::string& format,
                       const std::vector<Shape>& shapes,
                       const std::string& config = "") {
  const auto found = FindFormat(format);
  EXPECT_TRUE(found.ok());
  SinkRequest request;
  request.path = path;
  request.config = config;
  for (size_t t = 0; t < shapes.size(); ++t) {
    request.tensors.push_back({.name = fmt::format("t{}", t),
                               .role = format == "native" ? "master" : "",
                               .dtype = DType::kF32,
                               .shape = shapes[t]});
  }
  auto sink = (*found)->create(std::move(request));
  EXPECT_TRUE(sink.ok()) << sink.status().ToString();
  for (const Shape& shape : shapes) {
    EXPECT_TRUE((*sink)->Append(Bytes(static_cast<size_t>(ElementCount(shape)) * 4)).ok());
  }
  EXPECT_TRUE((*sink)->Finish().ok());
  return path;
}

/// What was said, checked as it comes.
class Said {
 public:
  std::function<void(int64_t, int64_t)> Listener() {
    return [this](int64_t done, int64_t all) {
      EXPECT_GE(done, last_);
      EXPECT_TRUE(all_ < 0 || all == all_) << "the whole does not change";
      last_ = done;
      all_ = all;
    };
  }
  void ExpectWhole(int64_t bytes) const {
    EXPECT_EQ(last_, bytes);
    EXPECT_EQ(all_, bytes);
  }

 private:
  int64_t last_ = 0;
  int64_t all_ = -1;
};

TEST(ProgressTest, ADifferenceCountsTheElementsOfBoth) {
  const TemporaryFolder folder;
  const std::string a = WriteModel(folder.path() + "/a", "safetensors", {{100, 30}, {7}, {2, 3}});
  // The second cannot be compared, the last is missing.
  const std::string b = WriteModel(folder.path() + "/b", "safetensors", {{100, 30}, {8}});
  Said said;
  const auto difference = Diff(a, b, said.Listener());
  ASSERT_TRUE(difference.ok()) << difference.status().ToString();
  said.ExpectWhole(2 * 100 * 30 * 4);
  ASSERT_EQ(difference->tensors.size(), 3U);
  EXPECT_TRUE(difference->tensors[0].equal);
  EXPECT_EQ(difference->tensors[2].what, "only in A");
}

TEST(ProgressTest, AConversionCountsTheElements) {
  const TemporaryFolder folder;
  const std::string a = WriteModel(folder.path() + "/a", "safetensors", {{100, 30}, {0}, {7}});
  Said said;
  ConvertOptions options;
  options.to = "native";
  options.progress = said.Listener();
  const auto summary = Convert(a, folder.path() + "/b", options);
  ASSERT_TRUE(summary.ok()) << summary.status().ToString();
  said.ExpectWhole((100 * 30 + 7) * 4);
}

TEST(ProgressTest, ACheckpointSaysWhatItStores) {
  const TemporaryFolder folder;
  const std::string path = WriteModel(folder.path() + "/a", "native", {{100, 30}, {7}});
  const auto model = OpenModel(path);
  ASSERT_TRUE(model.ok()) << model.status().ToString();
  const auto reader = Reader::Open(path);
  ASSERT_TRUE(reader.ok()) << reader.status().ToString();
  for (size_t t = 0; t < 2; ++t) {
    int64_t stored = 0;
    for (const BoxRecord& box : (*reader)->manifest().tensors[t].boxes) {
      for (const ChunkRecord& chunk : box.chunks) {
        stored += chunk.bytes;
      }
    }
    EXPECT_GT(stored, 0);
    EXPECT_EQ((*model)->tensors()[t].stored_bytes, stored);
  }
}

TEST(ProgressTest, ANoteIsSaidOnlyWhenThereIsOne) {
  const TemporaryFolder folder;
  const std::string a = WriteModel(folder.path() + "/a", "safetensors", {{3}});
  ConvertOptions options;
  options.to = "safetensors";
  options.note = [](const std::string& line) { EXPECT_FALSE(line.empty()); };
  EXPECT_TRUE(Convert(a, folder.path() + "/b", options).ok());
}

TEST(ProgressTest, TheSideThatIsNoModelIsNamed) {
  const TemporaryFolder folder;
  const std::string config =
      R"({"model_type": "llama", "vocab_size": 4, "hidden_size": 4, "intermediate_size": 4,
          "num_hidden_layers": 1, "num_attention_heads": 1, "num_key_value_heads": 1,
          "max_position_embeddings": 8, "rms_norm_eps": 1e-5, "rope_theta": 10000.0})";
  const std::string good = WriteModel(folder.path() + "/good", "safetensors", {{3}});
  const std::string bad = WriteModel(folder.path() + "/bad", "native", {{3}}, config);
  for (const auto& [a, b] : {std::pair(good, bad), std::pair(bad, good)}) {
    const Status status = Diff(a, b).status();
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
    EXPECT_TRUE(status.message().starts_with(bad + ": ")) << status.message();
  }
}

/// Takes what comes; counts it.
class CountingSink : public TensorSink {
 public:
  Status Append(std::span<const std::byte> bytes) override {
    bytes_ += bytes.size();
    return Status::Ok();
  }
  Status Finish() override { return Status::Ok(); }
  size_t bytes() const { return bytes_; }

 private:
  size_t bytes_ = 0;
};

class BrokenModel : public MemoryModel {
 public:
  BrokenModel() : MemoryModel("") { Add("t", {3}, 0); }
  Status Read(size_t /*tensor*/, const Box& /*box*/, std::span<std::byte> /*out*/) const override {
    return DataLossError("the disk is broken");
  }
};

TEST(CopyTest, WhatCannotBeReadIsNotWritten) {
  CountingSink sink;
  EXPECT_EQ(CopyTensor(BrokenModel(), 0, DType::kF32, sink, {}).message(), "the disk is broken");
  EXPECT_EQ(sink.bytes(), 0U);
}

TEST(CopyTest, ATensorIsCopiedInTilesAndSaysTheBytesThatItWrote) {
  MemoryModel model("");
  model.Add("small", {3, 5}, 0);
  model.Add("none", {0, 5}, 0);
  CountingSink sink;
  int64_t said = 0;
  const auto progress = [&](int64_t bytes) { said += bytes; };
  ASSERT_TRUE(CopyTensor(model, 0, DType::kF32, sink, progress).ok());
  EXPECT_EQ(said, 60);
  ASSERT_TRUE(CopyTensor(model, 0, DType::kBF16, sink, progress).ok());
  EXPECT_EQ(said, 90);
  ASSERT_TRUE(CopyTensor(model, 1, DType::kF32, sink, progress).ok());
  EXPECT_EQ(said, 90);
  EXPECT_EQ(sink.bytes(), 90U);
  const Status status = CopyTensor(model, 0, DType::kI64, sink, progress);
  EXPECT_EQ(status.code(), StatusCode::kUnimplemented);
  EXPECT_THAT(status.message(), HasSubstr("tensor 'small'"));
}

}  // namespace
}  // namespace heddle::checkpoint
