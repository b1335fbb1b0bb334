/// \file
/// What a conversion's options change, and nothing else: element types of weights, what config.json
/// says of them, files by size, and what is counted.
#include <filesystem>

#include <gmock/gmock.h>

#include "checkpoint/convert/convert.h"
#include "checkpoint/formats/format.h"
#include "checkpoint/storage/manifest_file.h"
#include "tests/checkpoint/support.h"

namespace heddle::checkpoint {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

struct Tensor {
  std::string name;
  std::string role;
  DType dtype;
  int64_t elements;
};

class OptionsTest : public ::testing::Test {
 protected:
  void Write(const std::string& format,
             const std::vector<Tensor>& tensors,
             const std::string& config = "") const {
    SinkRequest request;
    request.path = source_;
    request.config = config;
    for (const Tensor& one : tensors) {
      request.tensors.push_back(
          {.name = one.name, .role = one.role, .dtype = one.dtype, .shape = {one.elements}});
    }
    auto sink = (*FindFormat(format))->create(std::move(request));
    ASSERT_TRUE(sink.ok()) << sink.status().ToString();
    for (const Tensor& one : tensors) {
      ASSERT_TRUE(
          (*sink)->Append(Bytes(static_cast<size_t>(one.elements * SizeOf(one.dtype)))).ok());
    }
    ASSERT_TRUE((*sink)->Finish().ok());
  }
  Result<ConvertSummary> ConvertTo(const std::string& format, std::optional<DType> dtype) {
    std::filesystem::remove_all(target_);
    return Convert(source_, target_, {.to = format, .dtype = dtype, .progress = {}});
  }
  /// "NAME ROLE TYPE" of each tensor of the target.
  std::vector<std::string> Written() const {
    std::vector<std::string> lines;
    const auto model = OpenModel(target_);
    EXPECT_TRUE(model.ok()) << model.status().ToString();
    for (const FileTensor& tensor : (*model)->tensors()) {
      lines.push_back(fmt::format("{} {} {}", tensor.name, tensor.role, DTypeName(*tensor.dtype)));
    }
    return lines;
  }

  const TemporaryFolder folder_;
  const std::string source_ = folder_.path() + "/source";
  const std::string target_ = folder_.path() + "/target";
};

TEST_F(OptionsTest, ATypeIsThatOfFloatingWeightsAlone) {
  Write("safetensors",
        {{"a", "", DType::kF32, 4}, {"b", "", DType::kF16, 4}, {"c", "", DType::kI64, 4}});
  const auto summary = ConvertTo("safetensors", DType::kBF16);
  ASSERT_TRUE(summary.ok()) << summary.status().ToString();
  EXPECT_EQ(summary->tensors, 3);
  EXPECT_EQ(summary->bytes, 4 * 2 + 4 * 2 + 4 * 8) << "as written";
  EXPECT_THAT(Written(),
              ElementsAre("a  bf16", "b  bf16", fmt::format("c  {}", DTypeName(DType::kI64))));
  ASSERT_TRUE(ConvertTo("native", std::nullopt).ok());
  EXPECT_THAT(Written(), ElementsAre("a master fp32", "b master fp16",
                                     fmt::format("c master {}", DTypeName(DType::kI64))));
}

TEST_F(OptionsTest, MomentsKeepTheirTypeAndGoToNativeOnesAlone) {
  Write("native", {{"a", "exp_avg", DType::kF32, 4}, {"a", "master", DType::kF32, 4}});
  ASSERT_TRUE(ConvertTo("native", DType::kBF16).ok());
  EXPECT_THAT(Written(), ElementsAre("a exp_avg fp32", "a master bf16"));
  ASSERT_TRUE(ConvertTo("safetensors", DType::kBF16).ok());
  EXPECT_THAT(Written(), ElementsAre("a  bf16"));
}

TEST_F(OptionsTest, TheConfigSaysTheNewTypeUnderTheNamesThatItHas) {
  const auto config = [&](const std::string& before, std::optional<DType> dtype) {
    std::filesystem::remove_all(source_);
    Write("safetensors", {{"a", "", DType::kF32, 4}}, before);
    const auto summary = ConvertTo("safetensors", dtype);
    EXPECT_TRUE(summary.ok()) << summary.status().ToString();
    return *ReadFile(target_ + "/config.json", 1 << 20);
  };
  const std::string both = R"({"z": 1, "torch_dtype": "x", "dtype": "y", "a": 2})";
  for (const auto& [dtype, name] :
       {std::pair(DType::kF32, "float32"), {DType::kF16, "float16"}, {DType::kBF16, "bfloat16"}}) {
    EXPECT_EQ(config(both, dtype),
              fmt::format("{{\n  \"z\": 1,\n  \"torch_dtype\": \"{}\",\n  \"dtype\": \"{}\",\n  "
                          "\"a\": 2\n}}\n",
                          name, name))
        << "keys stay in their order";
  }
  EXPECT_EQ(config(R"({"z": 1})", DType::kF16), "{\n  \"z\": 1\n}\n");
  EXPECT_EQ(config(both, std::nullopt), both) << "as it is";
  for (const auto& [text, what] : {std::pair("{", "not JSON"), {"[1]", "expected an object"}}) {
    for (const std::optional<DType> dtype : {std::optional(DType::kF16), std::optional<DType>()}) {
      std::filesystem::remove_all(source_);
      std::filesystem::remove_all(target_);
      Write("safetensors", {{"a", "", DType::kF32, 4}}, text);
      EXPECT_THAT(ConvertTo("safetensors", dtype).status().message(),
                  HasSubstr(fmt::format("{}/config.json: {}", source_, what)));
      EXPECT_FALSE(FileExists(target_));
    }
  }
}

TEST_F(OptionsTest, FilesOfANativeModelAreAsLargeAsIsWished) {
  Write("safetensors",
        {{"a", "", DType::kF32, 4}, {"b", "", DType::kF32, 4}, {"c", "", DType::kF32, 4}});
  const auto names = [&](int64_t most) {
    std::filesystem::remove_all(target_);
    const auto summary = Convert(
        source_, target_,
        {.to = "native", .dtype = {}, .max_shard_bytes = most, .threads = 3, .progress = {}});
    EXPECT_TRUE(summary.ok()) << summary.status().ToString();
    const auto manifest = LoadManifest(target_);
    EXPECT_TRUE(manifest.ok()) << manifest.status().ToString();
    std::string text = fmt::format("{}: ", manifest->step);
    for (const FileRecord& file : manifest->files) {
      text += file.name + " ";
    }
    for (const TensorRecord& tensor : manifest->tensors) {
      text += fmt::format("{}{} ", tensor.boxes[0].dataset, tensor.boxes[0].file);
    }
    return text;
  };
  EXPECT_EQ(names(1 << 20), "0: model.g0.h5 tensors.h5 /master/a0 /master/b0 /master/c0 ");
  EXPECT_EQ(names(32),
            "0: model-00001-of-00002.g0.h5 model-00002-of-00002.g0.h5 tensors.h5 "
            "/master/a0 /master/b0 /master/c1 ");
}

TEST_F(OptionsTest, AModelThatIsThereIsReplacedWhenThatIsWished) {
  Write("safetensors", {{"a", "", DType::kF32, 4}});
  for (const char* const format : {"safetensors", "pytorch", "native"}) {
    ASSERT_TRUE(ConvertTo(format, std::nullopt).ok()) << format;
    const auto again = [&](bool overwrite) {
      return Convert(source_, target_,
                     {.to = format, .dtype = DType::kBF16, .overwrite = overwrite, .progress = {}})
          .status();
    };
    EXPECT_EQ(again(false).code(), StatusCode::kAlreadyExists) << format;
    EXPECT_THAT(Written()[0], HasSubstr("fp32")) << format;
    EXPECT_TRUE(again(true).ok()) << again(true).ToString();
    EXPECT_THAT(Written()[0], HasSubstr("bf16")) << format;
  }
}

TEST_F(OptionsTest, AFolderThatIsNamedForAnotherStepIsRefused) {
  Write("safetensors", {{"a", "", DType::kF32, 4}});
  const std::string named = folder_.path() + "/step-00000007";
  const auto refused = Convert(source_, named, {.to = "native", .dtype = {}, .progress = {}});
  EXPECT_EQ(refused.status().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(refused.status().message(),
            named + ": what it would hold is of step 0: name the folder otherwise");
  EXPECT_TRUE(Convert(source_, folder_.path() + "/step-00000000",
                      {.to = "native", .dtype = {}, .progress = {}})
                  .ok());
  EXPECT_EQ(Convert(source_, target_, {.to = "gguf", .dtype = {}, .progress = {}}).status().code(),
            StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace heddle::checkpoint
