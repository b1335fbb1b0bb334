/// \file
/// A model under the other side's names: each element against where a table by hand says it lies,
/// and everything that makes a file another model than its config.json.
#include "checkpoint/convert/model_view.h"

#include <functional>
#include <map>

#include <gmock/gmock.h>

#include "tests/checkpoint/convert/small_models.h"

namespace heddle::checkpoint {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

size_t PlaceOf(const TensorSource& source, const std::string& name) {
  for (size_t i = 0; i < source.tensors().size(); ++i) {
    if (source.tensors()[i].name == name) {
      return i;
    }
  }
  ADD_FAILURE() << "no tensor " << name;
  return 0;
}

std::vector<float> ReadFloats(const TensorSource& source, const std::string& name, const Box& box) {
  std::vector<float> values(static_cast<size_t>(ElementCount(box.extent)), -1.F);
  const Status status =
      source.Read(PlaceOf(source, name), box, std::as_writable_bytes(std::span(values)));
  EXPECT_TRUE(status.ok()) << status.ToString();
  return values;
}

Status Fails(std::unique_ptr<TensorSource> model) {
  return ViewAs(std::move(model), Naming::kHeddle).status();
}

TEST(ModelViewTest, LlamaIsTheSameUnderBothNames) {
  const std::vector<Named> tensors = LlamaTensors();
  for (const bool ours : {false, true}) {
    for (const Naming naming : {Naming::kHeddle, Naming::kHuggingFace}) {
      auto view = ViewAs(LlamaModel(false, ours), naming);
      ASSERT_TRUE(view.ok()) << view.status().ToString();
      EXPECT_TRUE(view->renamed);
      EXPECT_THAT(view->notes, IsEmpty());
      EXPECT_EQ(view->source->format(), "memory");
      EXPECT_EQ(view->source->step(), 17);
      EXPECT_EQ(view->source->config(), Llama(false));
      ASSERT_EQ(view->source->tensors().size(), tensors.size() + 1);
      for (size_t i = 0; i < tensors.size(); ++i) {
        const std::string& name = naming == Naming::kHeddle ? tensors[i].ours : tensors[i].theirs;
        const FileTensor& tensor = view->source->tensors()[PlaceOf(*view->source, name)];
        EXPECT_EQ(tensor.role, "master");
        EXPECT_EQ(tensor.shape, tensors[i].shape);
        EXPECT_EQ(tensor.bytes, ElementCount(tensors[i].shape) * 4);
        EXPECT_EQ(tensor.stored_bytes, tensor.bytes);
        const auto values = ReadFloats(*view->source, name, WholeBox(tensor.shape));
        EXPECT_EQ(values.front(), First(i)) << name;
        EXPECT_EQ(values.back(), First(i) + static_cast<float>(values.size() - 1)) << name;
      }
    }
  }
}

TEST(ModelViewTest, Gpt2sJoinedAndTurnedTensorsAreReadThrough) {
  const auto file = Gpt2Model();
  const std::string joined = "transformer.h.0.attn.c_attn.";
  const auto theirs = ReadFloats(*file, joined + "weight", WholeBox({kHidden, 3 * kHidden}));
  auto view = ViewAs(Gpt2Model(), Naming::kHeddle);
  ASSERT_TRUE(view.ok()) << view.status().ToString();
  const char* const parts[] = {"query", "key", "value"};
  for (int64_t part = 0; part < 3; ++part) {
    const std::string name = fmt::format("layers.0.attention.{}.weight", parts[part]);
    // Whole, and a box whose sides lie inside of tiles.
    for (const Box& box :
         {WholeBox({kHidden, kHidden}), Box{{3, 31}, {35, 9}}, Box{{7, 5}, {1, 1}}}) {
      const auto values = ReadFloats(*view->source, name, box);
      for (int64_t r = 0; r < box.extent[0]; ++r) {
        for (int64_t c = 0; c < box.extent[1]; ++c) {
          const int64_t out = box.offset[0] + r;
          const int64_t in = box.offset[1] + c;
          ASSERT_EQ(values[static_cast<size_t>(r * box.extent[1] + c)],
                    theirs[static_cast<size_t>(in * 3 * kHidden + part * kHidden + out)])
              << name << " [" << out << ", " << in << "]";
        }
      }
    }
    const auto bias = ReadFloats(
        *view->source, fmt::format("layers.0.attention.{}.bias", parts[part]), WholeBox({kHidden}));
    const auto all = ReadFloats(*file, joined + "bias", WholeBox({3 * kHidden}));
    EXPECT_EQ(bias[1], all[static_cast<size_t>(part * kHidden + 1)]);
  }
  // Back again, joined.
  auto back = ViewAs(std::move(view->source), Naming::kHuggingFace);
  ASSERT_TRUE(back.ok()) << back.status().ToString();
  EXPECT_EQ(ReadFloats(*back->source, joined + "weight", WholeBox({kHidden, 3 * kHidden})), theirs);
  const Box across{{2, kHidden - 3}, {33, kHidden + 5}};  // Parts of all three.
  const auto values = ReadFloats(*back->source, joined + "weight", across);
  EXPECT_EQ(values[1], theirs[static_cast<size_t>(2 * 3 * kHidden + kHidden - 2)]);
  EXPECT_EQ(values.back(), theirs[static_cast<size_t>(34 * 3 * kHidden + 2 * kHidden + 1)]);
  const FileTensor& tensor = back->source->tensors()[PlaceOf(*back->source, joined + "weight")];
  EXPECT_EQ(tensor.bytes, kHidden * 3 * kHidden * 4);
}

TEST(ModelViewTest, ABoxOutsideOfItsTensorIsNamedAndAnEmptyOneReadsNothing) {
  auto view = ViewAs(LlamaModel(false), Naming::kHeddle);
  ASSERT_TRUE(view.ok());
  const size_t place = PlaceOf(*view->source, "head.norm.weight");
  std::vector<float> out(2);
  const Status status =
      view->source->Read(place, Box{{kHidden - 1}, {2}}, std::as_writable_bytes(std::span(out)));
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(status.message(), HasSubstr("tensor 'head.norm.weight'"));
  EXPECT_TRUE(view->source->Read(place, Box{{3}, {0}}, {}).ok());
}

TEST(ModelViewTest, FilesOfBareModelsLackThePrefix) {
  auto model = std::make_unique<MemoryModel>(Llama(true));
  const std::vector<Named> tensors = LlamaTensors();
  for (size_t i = 0; i < tensors.size(); ++i) {
    model->Add(tensors[i].theirs.substr(std::string("model.").size()), tensors[i].shape, First(i));
  }
  const auto view = ViewAs(std::move(model), Naming::kHeddle);
  ASSERT_TRUE(view.ok()) << view.status().ToString();
  EXPECT_EQ(ReadFloats(*view->source, "embedding.weight", WholeBox({kVocabulary, kHidden}))[0],
            First(0));
}

TEST(ModelViewTest, MomentsAreNoPartOfAModel) {
  auto model = LlamaModel(true, true);
  model->Add("embedding.weight", {kVocabulary, kHidden}, 0.F, "exp_avg");
  const auto view = ViewAs(std::move(model), Naming::kHuggingFace);
  ASSERT_TRUE(view.ok()) << view.status().ToString();
  EXPECT_EQ(view->source->tensors().size(), LlamaTensors().size());
}

TEST(ModelViewTest, AVocabularyMayBePaddedWithRowsOfZeros) {
  for (const bool zeros : {true, false}) {
    auto model = LlamaModel(false);
    model->Remove("lm_head.weight");
    model->Add("lm_head.weight", {kVocabulary + 2, kHidden}, 5.F);
    const size_t kept = kVocabulary * kHidden * sizeof(float);
    std::fill(model->last_bytes().begin() + kept, model->last_bytes().end(), std::byte{0});
    model->last_bytes().back() = zeros ? std::byte{0} : std::byte{1};
    const auto view = ViewAs(std::move(model), Naming::kHeddle);
    if (zeros) {
      ASSERT_TRUE(view.ok()) << view.status().ToString();
      EXPECT_THAT(
          view->notes,
          ElementsAre("tensor 'lm_head.weight': 2 rows beyond the vocabulary are left out"));
      EXPECT_EQ(ReadFloats(*view->source, "head.weight", WholeBox({kVocabulary, kHidden})).back(),
                5.F + kVocabulary * kHidden - 1);
    } else {
      EXPECT_EQ(
          view.status().message(),
          "tensor 'lm_head.weight' has 8 rows, config.json's vocabulary 6, and the others are "
          "not padding");
    }
  }
}

struct Case {
  std::function<void(MemoryModel&)> change;
  std::string message;
};

TEST(ModelViewTest, WhatIsNotTheModelOfConfigJsonIsNamed) {
  const std::vector<Case> cases = {
      {[](auto& m) {
         m.Remove("lm_head.weight");
         m.Add("lm_head.weight", {kVocabulary - 1, kHidden}, 0);
       },
       "tensor 'lm_head.weight' has shape [5, 40], config.json makes it [6, 40]"},
      {[](auto& m) {  // Rows are padded, columns are not.
         m.Remove("lm_head.weight");
         m.Add("lm_head.weight", {kVocabulary + 1, kHidden + 1}, 0);
       },
       "tensor 'lm_head.weight' has shape [7, 41], config.json makes it [6, 40]"},
      {[](auto& m) {  // Only of tables with a row a token.
         m.Remove("model.layers.0.mlp.up_proj.weight");
         m.AddBytes("model.layers.0.mlp.up_proj.weight", DType::kF32, {kInner + 1, kHidden},
                    Bytes(static_cast<size_t>((kInner + 1) * kHidden * 4)));
       },
       "tensor 'model.layers.0.mlp.up_proj.weight' has shape [49, 40], config.json makes it "
       "[48, 40]"},
      {[](auto& m) { m.Remove("model.norm.weight"); },
       "the model that config.json describes also has: model.norm.weight"},
      {[](auto& m) {
         for (const char* name : {"q_proj", "k_proj", "v_proj", "o_proj"}) {
           m.Remove(fmt::format("model.layers.0.self_attn.{}.weight", name));
         }
         m.Remove("model.norm.weight");
       },
       "the model that config.json describes also has: model.layers.0.self_attn.q_proj.weight, "
       "model.layers.0.self_attn.k_proj.weight, model.layers.0.self_attn.v_proj.weight, "
       "model.layers.0.self_attn.o_proj.weight, model.norm.weight"},
      {[](auto& m) {
         for (const char* name : {"q_proj", "k_proj", "v_proj", "o_proj"}) {
           m.Remove(fmt::format("model.layers.0.self_attn.{}.weight", name));
         }
         m.Remove("model.layers.0.mlp.gate_proj.weight");
         m.Remove("model.layers.0.mlp.up_proj.weight");
         m.Remove("model.norm.weight");
       },
       "the model that config.json describes also has: model.layers.0.self_attn.q_proj.weight, "
       "model.layers.0.self_attn.k_proj.weight, model.layers.0.self_attn.v_proj.weight, "
       "model.layers.0.self_attn.o_proj.weight, model.layers.0.mlp.gate_proj.weight and 2 more"},
      {[](auto& m) { m.Add("model.layers.1.mlp.up_proj.weight", {1}, 0); },
       "not part of the model that config.json describes: model.layers.1.mlp.up_proj.weight"},
      {[](auto& m) {
         m.last().dtype.reset();
         m.last().type = "F8_E4M3";
       },
       "tensor 'lm_head.weight': elements of type F8_E4M3 are not supported"},
  };
  for (const Case& one : cases) {
    auto model = LlamaModel(false);
    one.change(*model);
    const Status status = Fails(std::move(model));
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument) << one.message;
    EXPECT_EQ(status.message(), one.message);
  }
}

TEST(ModelViewTest, PartsOfOneTensorAreOfOneType) {
  auto view = ViewAs(Gpt2Model(), Naming::kHeddle);
  ASSERT_TRUE(view.ok());
  // In Heddle's names the parts are apart, and one of them is of another type.
  auto model = std::make_unique<MemoryModel>(Gpt2());
  for (const FileTensor& tensor : view->source->tensors()) {
    model->Add(tensor.name, tensor.shape, 0);
    if (tensor.name == "layers.0.attention.key.weight") {
      model->Remove(tensor.name);
      model->AddBytes(tensor.name, DType::kBF16, tensor.shape,
                      Bytes(static_cast<size_t>(ElementCount(tensor.shape) * 2)));
    }
  }
  EXPECT_EQ(ViewAs(std::move(model), Naming::kHuggingFace).status().message(),
            "tensor 'layers.0.attention.key.weight' is bf16 and other parts of "
            "'transformer.h.0.attn.c_attn.weight' are fp32");
}

TEST(ModelViewTest, TablesThatFollowFromTheConfigAreLeftOut) {
  auto model = LlamaModel(false);
  model->Add("model.layers.0.self_attn.rotary_emb.inv_freq", {4}, 0);
  const auto view = ViewAs(std::move(model), Naming::kHeddle);
  ASSERT_TRUE(view.ok()) << view.status().ToString();
  EXPECT_THAT(view->notes, ElementsAre("left out, because they follow from the rest: "
                                       "model.layers.0.self_attn.rotary_emb.inv_freq"));
  EXPECT_EQ(view->source->tensors().size(), LlamaTensors().size() + 1);
  auto other = Gpt2Model();
  other->Add("transformer.h.0.attn.bias", {1}, 0);
  other->Add("transformer.h.0.attn.masked_bias", {1}, 0);
  EXPECT_TRUE(ViewAs(std::move(other), Naming::kHeddle).ok());
}

TEST(ModelViewTest, ATiedHeadMustBeTheEmbedding) {
  const auto head = [](const Shape& shape, float first) {
    auto model = LlamaModel(true);
    model->Add("lm_head.weight", shape, first);
    return ViewAs(std::move(model), Naming::kHeddle);
  };
  const auto equal = head({kVocabulary, kHidden}, First(0));
  ASSERT_TRUE(equal.ok()) << equal.status().ToString();
  EXPECT_THAT(equal->notes,
              ElementsAre("left out, because they follow from the rest: lm_head.weight"));
  EXPECT_EQ(equal->source->tensors().size(), LlamaTensors().size());
  const std::string message =
      "config.json ties the head to the embedding, but tensor 'lm_head.weight' differs from it";
  EXPECT_EQ(head({kVocabulary, kHidden}, First(0) + 1).status().message(), message);
  EXPECT_EQ(head({kHidden, kVocabulary}, First(0)).status().message(), message);
  EXPECT_EQ(Fails([] {
              auto model = LlamaModel(false);  // A head of its own is no part of a tied model.
              model->Add("head.weight", {1}, 0);
              return model;
            }())
                .message(),
            "not part of the model that config.json describes: head.weight");
}

TEST(ModelViewTest, ATiedModelMayHoldItsTableAsTheHead) {
  for (const bool ours : {false, true}) {
    const std::string head = ours ? "head.weight" : "lm_head.weight";
    auto model = LlamaModel(true, ours);
    model->Remove(ours ? "embedding.weight" : "model.embed_tokens.weight");
    model->Add(head, {kVocabulary, kHidden}, First(77));
    for (const Naming naming : {Naming::kHeddle, Naming::kHuggingFace}) {
      auto copy = std::make_unique<MemoryModel>(*model);
      const auto view = ViewAs(std::move(copy), naming);
      ASSERT_TRUE(view.ok()) << view.status().ToString();
      const std::string name =
          naming == Naming::kHeddle ? "embedding.weight" : "model.embed_tokens.weight";
      EXPECT_EQ(ReadFloats(*view->source, name, WholeBox({kVocabulary, kHidden}))[0], First(77));
      EXPECT_EQ(view->source->tensors().size(), LlamaTensors().size());
    }
  }
  auto model = LlamaModel(false);  // Not tied: the head is no table.
  model->Remove("model.embed_tokens.weight");
  EXPECT_EQ(Fails(std::move(model)).message(),
            "the model that config.json describes also has: model.embed_tokens.weight");
}

TEST(ModelViewTest, NamesAreReadWithoutWhatWrapsTheModel) {
  for (const std::string prefix :
       {"module.", "_orig_mod.", "module._orig_mod.", "_orig_mod.module."}) {
    const std::vector<Named> tensors = LlamaTensors();
    auto model = std::make_unique<MemoryModel>(Llama(true));
    for (size_t i = 0; i < tensors.size(); ++i) {
      model->Add(prefix + tensors[i].theirs, tensors[i].shape, First(i));
    }
    const auto view = ViewAs(std::move(model), Naming::kHeddle);
    ASSERT_TRUE(view.ok()) << view.status().ToString();
    EXPECT_THAT(view->notes, ElementsAre("names are read without their prefix '" + prefix + "'"));
    EXPECT_EQ(ReadFloats(*view->source, "embedding.weight", WholeBox({kVocabulary, kHidden}))[0],
              First(0));
  }
  auto model = LlamaModel(true);  // Some names alone: it wraps nothing.
  model->Remove("model.norm.weight");
  model->Add("module.model.norm.weight", {kHidden}, 1);
  EXPECT_EQ(Fails(std::move(model)).message(),
            "the model that config.json describes also has: model.norm.weight; the file has "
            "another name, module.model.norm.weight");
}

TEST(ModelViewTest, WithoutAConfigNamesStay) {
  for (const auto& [config, note] : std::map<std::string, std::string>{
           {"", "there is no config.json: names stay as they are"},
           {R"({"model_type": "bert"})", "names stay as they are"}}) {
    auto model = std::make_unique<MemoryModel>(config);
    model->Add("b", {2, 2}, 7);
    model->Add("a", {3}, 1, "master");
    model->Add("a", {3}, 1, "exp_avg");
    const auto view = ViewAs(std::move(model), Naming::kHuggingFace);
    ASSERT_TRUE(view.ok()) << view.status().ToString();
    EXPECT_FALSE(view->renamed);
    ASSERT_EQ(view->notes.size(), 1U);
    EXPECT_THAT(view->notes[0], HasSubstr(note));
    ASSERT_EQ(view->source->tensors().size(), 2U);
    EXPECT_EQ(view->source->tensors()[PlaceOf(*view->source, "b")].role, "master");
    EXPECT_THAT(ReadFloats(*view->source, "b", Box{{1, 0}, {1, 2}}), ElementsAre(9, 10));
  }
}

}  // namespace
}  // namespace heddle::checkpoint
