/// \file
/// A training state from a model's weights: what is written, and which models are refused.
#include "checkpoint/convert/initial_state.h"

#include <filesystem>
#include <functional>

#include <gmock/gmock.h>

#include "checkpoint/formats/format.h"
#include "checkpoint/storage/manifest_file.h"
#include "tests/checkpoint/support.h"

namespace heddle::checkpoint {
namespace {

using ::testing::HasSubstr;

graph::ModelConfig TinyModel() {
  graph::ModelConfig model;
  model.vocab_size = 10;
  model.hidden_size = 8;
  model.intermediate_size = 12;
  model.num_hidden_layers = 1;
  model.num_attention_heads = 4;
  model.num_key_value_heads = 2;
  model.max_position_embeddings = 16;
  return model;
}

/// Names and shapes of TinyModel's weights, by hand.
std::vector<std::pair<std::string, Shape>> TinyWeights() {
  const std::string layer = "layers.0.";
  return {{"embedding.weight", {10, 8}},
          {layer + "attention.norm.weight", {8}},
          {layer + "attention.query.weight", {8, 8}},
          {layer + "attention.key.weight", {4, 8}},
          {layer + "attention.value.weight", {4, 8}},
          {layer + "attention.output.weight", {8, 8}},
          {layer + "mlp.norm.weight", {8}},
          {layer + "mlp.gate.weight", {12, 8}},
          {layer + "mlp.up.weight", {12, 8}},
          {layer + "mlp.down.weight", {8, 12}},
          {"head.norm.weight", {8}},
          {"head.weight", {10, 8}}};
}

/// What the job expects: weights and moments, the weights last.
std::vector<TensorInfo> Expected(DType dtype = DType::kF32) {
  std::vector<TensorInfo> expected;
  for (const char* const role : {"exp_avg", "exp_avg_sq", "master"}) {
    for (const auto& [name, shape] : TinyWeights()) {
      expected.push_back({name, role, dtype, shape});
    }
  }
  return expected;
}

class InitialStateTest : public ::testing::Test {
 protected:
  InitialStateTest() { Write(TinyModel(), TinyWeights()); }

  /// The model's file; element i of tensor t is t + i / 64, which bf16 holds.
  void Write(const graph::ModelConfig& model,
             const std::vector<std::pair<std::string, Shape>>& weights,
             DType dtype = DType::kF32) {
    std::filesystem::remove_all(source_);
    const auto format = FindFormat("safetensors");
    ASSERT_TRUE(format.ok());
    SinkRequest request;
    request.path = source_;
    request.config = graph::ModelConfigJson(model);
    for (const auto& [name, shape] : weights) {
      request.tensors.push_back({.name = name, .role = "", .dtype = dtype, .shape = shape});
    }
    auto sink = (*format)->create(std::move(request));
    ASSERT_TRUE(sink.ok()) << sink.status().ToString();
    for (size_t t = 0; t < weights.size(); ++t) {
      const Bytes bytes = Elements(t, weights[t].second, dtype);
      ASSERT_TRUE((*sink)->Append(bytes).ok());
    }
    ASSERT_TRUE((*sink)->Finish().ok());
  }

  static Bytes Elements(size_t tensor, const Shape& shape, DType dtype) {
    Bytes bytes(static_cast<size_t>(ElementCount(shape) * SizeOf(dtype)));
    if (dtype != DType::kF32) {
      return bytes;
    }
    for (int64_t i = 0; i < ElementCount(shape); ++i) {
      const float value = static_cast<float>(tensor) + static_cast<float>(i) / 64;
      std::memcpy(bytes.data() + i * 4, &value, sizeof(value));
    }
    return bytes;
  }

  std::string Refusal(const graph::ModelConfig& model = TinyModel(),
                      const std::vector<TensorInfo>& expected = Expected()) {
    const Status checked = CheckInitialWeights(source_, model, expected);
    const Status written = WriteInitialState(source_, root_, model, expected);
    EXPECT_EQ(checked.message(), written.message());
    EXPECT_EQ(checked.code(), checked.ok() ? StatusCode::kOk : StatusCode::kInvalidArgument);
    const auto entries = List(root_);
    EXPECT_EQ(entries.ok() && entries->empty(), !checked.ok());
    const std::string prefix = source_ + ": ";
    return checked.message().starts_with(prefix) ? checked.message().substr(prefix.size())
                                                 : checked.message();
  }

  const TemporaryFolder folder_;
  const std::string source_ = folder_.path() + "/model";
  const std::string root_ = folder_.path() + "/job";
};

TEST_F(InitialStateTest, TheWeightsAreTheModelsAndTheMomentsAreZero) {
  const std::vector<TensorInfo> expected = Expected();
  ASSERT_TRUE(CheckInitialWeights(source_, TinyModel(), expected).ok());
  EXPECT_FALSE(FileExists(root_)) << "a check writes nothing";
  const Status written = WriteInitialState(source_, root_, TinyModel(), expected);
  ASSERT_TRUE(written.ok()) << written.ToString();
  const auto reader = Reader::Open(root_ + "/" + StepFolderName(0));
  ASSERT_TRUE(reader.ok()) << reader.status().ToString();
  EXPECT_EQ((*reader)->manifest().step, 0);
  EXPECT_EQ((*reader)->manifest().tensors.size(), expected.size());
  EXPECT_EQ((*reader)->manifest().job.model, graph::ModelConfigJson(TinyModel()));
  const auto weights = TinyWeights();
  for (size_t i = 0; i < expected.size(); ++i) {
    const TensorInfo& info = expected[i];
    Bytes out(static_cast<size_t>(ElementCount(info.shape) * 4), std::byte{0xAA});
    ASSERT_TRUE((*reader)->Read(info.key(), WholeBox(info.shape), out).ok()) << info.name;
    EXPECT_TRUE(out == (info.role == "master"
                            ? Elements(i % weights.size(), info.shape, DType::kF32)
                            : Bytes(out.size())))
        << info.name << " " << info.role;
  }
}

TEST_F(InitialStateTest, AJobThatHasCheckpointsKeepsThem) {
  ASSERT_TRUE(WriteInitialState(source_, root_, TinyModel(), Expected()).ok());
  const auto before = LoadManifest(root_ + "/" + StepFolderName(0));
  std::filesystem::remove_all(source_);  // It is not even looked at.
  EXPECT_TRUE(WriteInitialState(source_, root_, TinyModel(), Expected()).ok());
  EXPECT_EQ(before->created, LoadManifest(root_ + "/" + StepFolderName(0))->created);
}

TEST_F(InitialStateTest, MomentsLargerThanOnePieceAreZeroToTheirEnd) {
  graph::ModelConfig model = TinyModel();
  model.vocab_size = 40'000;  // 1.2 MiB: more than one piece of zeros.
  auto weights = TinyWeights();
  weights.front().second = weights.back().second = {40'000, 8};
  Write(model, weights);
  std::vector<TensorInfo> expected = Expected();
  for (TensorInfo& info : expected) {
    if (info.shape == Shape{10, 8}) {
      info.shape = {40'000, 8};
    }
  }
  const Status written = WriteInitialState(source_, root_, model, expected);
  ASSERT_TRUE(written.ok()) << written.ToString();
  const auto reader = Reader::Open(root_ + "/" + StepFolderName(0));
  Bytes out(size_t{40'000} * 8 * 4, std::byte{1});
  ASSERT_TRUE((*reader)->Read({"head.weight", "exp_avg"}, WholeBox({40'000, 8}), out).ok());
  EXPECT_TRUE(std::all_of(out.begin(), out.end(), [](std::byte b) { return b == std::byte{0}; }));
}

TEST_F(InitialStateTest, AModelThatComputesSomethingElseIsRefused) {
  const std::vector<std::pair<std::function<void(graph::ModelConfig&)>, std::string>> changes = {
      {[](auto& m) { m.num_attention_heads = 8, m.num_key_value_heads = 4; },
       "config.json has num_attention_heads 4, the job's model 8"},
      {[](auto& m) { m.num_key_value_heads = 4; },
       "config.json has num_key_value_heads 2, the job's model 4"},
      {[](auto& m) { m.norm_epsilon = 1e-6; },
       "config.json has a norm's epsilon of 1e-05, the job's model 1e-06"},
      {[](auto& m) { m.rope_theta = 5e5; },
       "config.json has rope_theta 10000, the job's model 500000"},
      {[](auto& m) { m.tie_word_embeddings = true; },
       "config.json has tie_word_embeddings false, the job's model true"},
      {[](auto& m) { m.family = graph::ModelFamily::kGpt2; },
       "config.json has family 0, the job's model 1"}};
  for (const auto& [change, message] : changes) {
    graph::ModelConfig model = TinyModel();
    change(model);
    EXPECT_EQ(Refusal(model), message);
  }
}

TEST_F(InitialStateTest, ATensorThatDoesNotFitIsNamed) {
  std::vector<TensorInfo> expected = Expected();
  expected.push_back({"layers.1.mlp.up.weight", "master", DType::kF32, {12, 8}});
  EXPECT_EQ(Refusal(TinyModel(), expected),
            "has no tensor 'layers.1.mlp.up.weight' of the job's model");
  expected = Expected();
  expected.pop_back();
  EXPECT_EQ(Refusal(TinyModel(), expected), "has 12 tensors, the job's model 11");
  expected = Expected();
  expected.back().shape = {8, 10};
  EXPECT_EQ(Refusal(TinyModel(), expected),
            "tensor 'head.weight' has shape [10, 8], the job's model [8, 10]");
  Write(TinyModel(), TinyWeights(), DType::kI32);
  EXPECT_THAT(Refusal(),
              HasSubstr("tensor 'embedding.weight': elements of type I32 do not become fp32"));
}

TEST_F(InitialStateTest, ATypeThatHeddleDoesNotKnowIsNamed) {
  const std::string header = R"({"w":{"dtype":"F8_E4M3","shape":[2],"data_offsets":[0,2]}})";
  const uint64_t length = header.size();
  std::string file(reinterpret_cast<const char*>(&length), sizeof(length));
  std::filesystem::remove_all(source_);
  std::filesystem::create_directories(source_);
  ASSERT_TRUE(WriteFileAtomically(source_ + "/model.safetensors", file + header + "xx").ok());
  EXPECT_EQ(Refusal(TinyModel(), {{"w", "master", DType::kF32, {2}}}),
            "tensor 'w': elements of type F8_E4M3 do not become fp32");
}

TEST_F(InitialStateTest, NarrowerWeightsAreWidened) {
  Write(TinyModel(), TinyWeights(), DType::kBF16);
  EXPECT_EQ(Refusal(), "");
}

TEST_F(InitialStateTest, AModelThatDoesNotSayWhatItIsMustHaveHeddlesNames) {
  std::filesystem::remove(source_ + "/config.json");
  EXPECT_EQ(Refusal(), "");
  std::filesystem::remove_all(root_);
  auto weights = TinyWeights();
  weights.front().first = "wte";
  Write(TinyModel(), weights);
  std::filesystem::remove(source_ + "/config.json");
  EXPECT_EQ(Refusal(),
            "has no tensor 'embedding.weight' of the job's model (there is no config.json: names "
            "stay as they are)");
}

}  // namespace
}  // namespace heddle::checkpoint
