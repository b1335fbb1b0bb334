/// \file
/// Goal: files of torch.save give the tensors that PyTorch would give, and nothing else gives any.
#include "checkpoint/formats/pytorch/pytorch.h"

#include <filesystem>

#include <gmock/gmock.h>

#include "checkpoint/formats/format.h"
#include "checkpoint/formats/shards.h"
#include "tests/checkpoint/formats/pytorch_support.h"
#include "tests/checkpoint/support.h"

namespace heddle::checkpoint {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr std::array kAllTypes = {DType::kF32, DType::kBF16, DType::kF16, DType::kF64,
                                  DType::kI32, DType::kI64,  DType::kU8};

class PytorchTest : public ::testing::Test {
 protected:
  /// The state's tensors to `path`, in pieces of random sizes.
  static Status Write(SinkRequest request, const State& state, Random& random) {
    HEDDLE_ASSIGN_OR_RETURN(const Format* format, FindFormat("pytorch"));
    for (const TensorInfo& info : state.tensors) {
      request.tensors.push_back(
          {.name = info.name, .role = {}, .dtype = info.dtype, .shape = info.shape});
    }
    HEDDLE_ASSIGN_OR_RETURN(auto sink, format->create(std::move(request)));
    for (size_t t = 0; t < state.tensors.size(); ++t) {
      const auto element = static_cast<size_t>(SizeOf(state.tensors[t].dtype));
      std::span<const std::byte> left(state.bytes[t]);
      while (!left.empty()) {
        const size_t size = element * (1 + random.Below(left.size() / element));
        HEDDLE_RETURN_IF_ERROR(sink->Append(left.first(size)));
        left = left.subspan(size);
      }
    }
    return sink->Finish();
  }

  static State RandomState(Random& random) {
    State state;
    for (int t = 0; t < 12; ++t) {
      Shape shape;
      for (uint64_t d = random.Below(4); d > 0; --d) {
        shape.push_back(random.Between(t % 4 == 0 ? 0 : 1, 12));
      }
      AddTensor(state, {fmt::format("layers.{:02}.w", t), "", kAllTypes[random.Below(7)], shape},
                random);
    }
    return state;
  }

  /// Random boxes and the whole of every tensor are as in `state`, which is sorted by name.
  static void ExpectSame(const TensorSource& source, const State& state, Random& random) {
    ASSERT_EQ(source.tensors().size(), state.tensors.size());
    for (size_t t = 0; t < state.tensors.size(); ++t) {
      const FileTensor& found = source.tensors()[t];
      EXPECT_EQ(found.name, state.tensors[t].name);
      EXPECT_EQ(found.dtype, state.tensors[t].dtype);
      EXPECT_EQ(found.shape, state.tensors[t].shape);
      EXPECT_EQ(found.bytes, static_cast<int64_t>(state.bytes[t].size()));
      auto boxes = RandomSplit(WholeBox(found.shape), 4, random);
      boxes.push_back(WholeBox(found.shape));
      for (const Box& box : boxes) {
        const Bytes expected = Extract(state.bytes[t], state.tensors[t], box);
        Bytes bytes(expected.size());
        const Status status = source.Read(t, box, bytes);
        ASSERT_TRUE(status.ok()) << status.ToString();
        EXPECT_EQ(bytes, expected) << found.name << ToString(box);
      }
    }
  }

  /// A file of this pickled value and storages "0", "1" …
  std::string File(const std::string& value, const std::vector<std::string>& storages) const {
    std::vector<std::pair<std::string, std::string>> entries = {
        {"data.pkl", opcodes::Pickle(value)}};
    for (size_t s = 0; s < storages.size(); ++s) {
      entries.emplace_back(fmt::format("data/{}", s), storages[s]);
    }
    std::filesystem::remove(path_);
    EXPECT_TRUE(WriteArchive(path_, entries).ok());
    return path_;
  }

  Status OpenError(const std::string& value, const std::vector<std::string>& storages) const {
    return OpenModel(File(value, storages)).status();
  }

  const TemporaryFolder folder_;
  const std::string path_ = folder_.path() + "/model.pt";
};

std::string One(const std::string& tensor) {
  return opcodes::Dict({{opcodes::Text("w"), tensor}});
}

TEST_F(PytorchTest, FilesAndFoldersComeBack) {
  Random random(TestSeed());
  for (int round = 0; round < 30; ++round) {
    const State state = RandomState(random);
    const bool is_file = round % 3 == 0;
    const bool is_sharded = round % 3 == 1;
    const std::string path = fmt::format("{}/{}{}", folder_.path(), round, is_file ? ".bin" : "");
    const Status status = Write({.path = path,
                                 .tensors = {},
                                 .config = is_file ? "" : "{\"model_type\": \"llama\"}",
                                 .max_shard_bytes = is_sharded ? 2000 : 1 << 30},
                                state, random);
    ASSERT_TRUE(status.ok()) << status.ToString();
    const auto source = OpenModel(path);
    ASSERT_TRUE(source.ok()) << source.status().ToString();
    EXPECT_EQ((*source)->format(), "pytorch");
    EXPECT_EQ((*source)->config(), is_file ? "" : "{\"model_type\": \"llama\"}");
    ExpectSame(**source, state, random);
    EXPECT_EQ(FileExists(path + "/pytorch_model.bin"),
              !is_file && !FileExists(path + "/pytorch_model.bin.index.json"));
  }
  for (const auto& entry : std::filesystem::directory_iterator(folder_.path())) {
    EXPECT_FALSE(entry.path().filename().string().starts_with(".")) << entry.path();
  }
}

TEST_F(PytorchTest, AnUnfinishedSinkLeavesNothing) {
  for (const std::string name : {"/a.pt", "/folder"}) {
    const auto format = FindFormat("pytorch");
    auto sink = (*format)->create(
        {.path = folder_.path() + name,
         .tensors = {{.name = "w", .role = {}, .dtype = DType::kF32, .shape = {2}},
                     {.name = "v", .role = {}, .dtype = DType::kF32, .shape = {2}}},
         .config = {},
         .max_shard_bytes = 8});
    ASSERT_TRUE(sink.ok());
    const Bytes bytes(8);
    EXPECT_TRUE((*sink)->Append(bytes).ok());
    EXPECT_EQ((*sink)->Finish().code(), StatusCode::kFailedPrecondition);
    EXPECT_FALSE(std::filesystem::is_empty(folder_.path()));
    sink->reset();
    EXPECT_TRUE(std::filesystem::is_empty(folder_.path()));
  }
}

TEST_F(PytorchTest, ViewsAreWhatTheyShow) {
  Random random(TestSeed());
  for (int round = 0; round < 200; ++round) {
    // A random view of a storage; what it shows is counted out element by element.
    Shape shape;
    Shape stride;
    int64_t last = random.Between(0, 5);
    const int64_t offset = last;
    for (uint64_t d = random.Below(4); d > 0; --d) {
      shape.push_back(random.Between(1, 40));
      stride.push_back(random.Between(0, random.Below(2) == 0 ? 3 : 100));
      last += (shape.back() - 1) * stride.back();
    }
    const DType dtype = kAllTypes[random.Below(7)];
    State storage;
    AddTensor(storage, {"s", "", dtype, {last + 1}}, random);
    State state;
    state.tensors.push_back({"w", "", dtype, shape});
    state.bytes.emplace_back();
    const auto size = static_cast<size_t>(SizeOf(dtype));
    for (int64_t i = 0; i < ElementCount(shape); ++i) {
      int64_t rest = i;
      int64_t at = offset;
      for (size_t d = shape.size(); d-- > 0;) {
        at += rest % shape[d] * stride[d];
        rest /= shape[d];
      }
      const auto* from = storage.bytes[0].data() + static_cast<size_t>(at) * size;
      state.bytes[0].insert(state.bytes[0].end(), from, from + size);
    }
    const std::string type = dtype == DType::kF32    ? "FloatStorage"
                             : dtype == DType::kBF16 ? "BFloat16Storage"
                             : dtype == DType::kF16  ? "HalfStorage"
                             : dtype == DType::kF64  ? "DoubleStorage"
                             : dtype == DType::kI32  ? "IntStorage"
                             : dtype == DType::kI64  ? "LongStorage"
                                                     : "ByteStorage";
    const std::string path =
        File(One(opcodes::Tensor(opcodes::Storage(type, "0", last + 1), offset, shape, stride)),
             {{reinterpret_cast<const char*>(storage.bytes[0].data()), storage.bytes[0].size()}});
    const auto source = OpenModel(path);
    ASSERT_TRUE(source.ok()) << source.status().ToString();
    ExpectSame(**source, state, random);
  }
}

TEST_F(PytorchTest, LargeTransposedViewsAreReadInParts) {
  // 12 MiB: three times what is read at once; and a narrow column, read row by row.
  const Shape shape = {1024, 3072};
  State state;
  Random random(TestSeed());
  AddTensor(state, {"w", "", DType::kF32, shape}, random);
  Bytes turned(state.bytes[0].size());
  for (size_t i = 0; i < 1024; ++i) {
    for (size_t j = 0; j < 3072; ++j) {
      std::memcpy(&turned[(j * 1024 + i) * 4], &state.bytes[0][(i * 3072 + j) * 4], 4);
    }
  }
  const std::string storage = opcodes::Storage("FloatStorage", "0", 1024 * 3072);
  const std::string raw(reinterpret_cast<const char*>(turned.data()), turned.size());
  const auto source = OpenModel(File(One(opcodes::Tensor(storage, 0, shape, {1, 1024})), {raw}));
  ASSERT_TRUE(source.ok());
  ExpectSame(**source, state, random);
  for (const Box& box :
       {Box{{5, 0}, {1, 3072}}, Box{{0, 7}, {1024, 1}}, Box{{3, 9}, {700, 2000}}}) {
    const Bytes expected = Extract(state.bytes[0], state.tensors[0], box);
    Bytes bytes(expected.size());
    EXPECT_TRUE((*source)->Read(0, box, bytes).ok());
    EXPECT_EQ(bytes, expected);
  }
}

TEST_F(PytorchTest, NamesOfNestedDictsAndTiedStorages) {
  const std::string storage = opcodes::Storage("FloatStorage", "0", 2);
  const std::string tensor = opcodes::Tensor(storage, 0, {2}, {1});
  const auto names = [&](const std::string& value) {
    std::vector<std::string> list;
    const auto source = OpenModel(File(value, {std::string(8, 'x')}));
    EXPECT_TRUE(source.ok()) << source.status().ToString();
    for (const FileTensor& one : source.ok() ? (*source)->tensors() : std::vector<FileTensor>{}) {
      list.push_back(one.name);
    }
    return list;
  };
  using opcodes::Dict;
  using opcodes::Text;
  const std::string model = Dict({{Text("z"), tensor}, {Text("a"), Dict({{Text("b"), tensor}})}});
  EXPECT_THAT(names(model), ElementsAre("a.b", "z"));
  EXPECT_THAT(names(Dict({{Text("optimizer"), model}, {Text("model"), model}})),
              ElementsAre("a.b", "z"));
  EXPECT_THAT(names(Dict({{Text("model"), model}, {Text("state_dict"), One(tensor)}})),
              ElementsAre("w"));
  EXPECT_THAT(names(Dict({{Text("model"), model}, {Text("own"), tensor}})),
              ElementsAre("model.a.b", "model.z", "own"));
  const std::string scalar = opcodes::Tensor(storage, 0, {}, {});
  EXPECT_THAT(names(Dict({{Text("best_loss"), scalar}, {Text("model"), model}})),
              ElementsAre("a.b", "z"));
  EXPECT_THAT(names(Dict({{Text("scale"), scalar}, {Text("sub"), model}})),
              ElementsAre("scale", "sub.a.b", "sub.z"));
  EXPECT_THAT(names(Dict({{"K\x03", "]" + tensor + "a"}, {Text("note"), "N"}})),
              ElementsAre("3.0"));
  EXPECT_THAT(names(Dict({{Text("t"), "(N" + tensor + "t"}})), ElementsAre("t.1"));
}

TEST_F(PytorchTest, DictsAndNamesMayReachTheirBounds) {
  const std::string tensor = opcodes::Tensor(opcodes::Storage("FloatStorage", "0", 2), 0, {2}, {1});
  const auto status = [&](size_t depth, size_t name) {
    std::string value = tensor;
    for (size_t level = 0; level < depth; ++level) {
      value = opcodes::Dict({{opcodes::Text(std::string(level == 0 ? name : 1, 'd')), value}});
    }
    return OpenError(value, {std::string(8, 'x')});
  };
  const std::string refusal =
      path_ + ": at most 150000 tensors, names of 1024 bytes and 32 dicts in each other are read";
  EXPECT_TRUE(status(32, 1).ok()) << status(32, 1).ToString();
  EXPECT_EQ(status(33, 1).message(), refusal);
  EXPECT_TRUE(status(1, 1024).ok()) << status(1, 1024).ToString();
  EXPECT_EQ(status(1, 1025).message(), refusal);
  EXPECT_TRUE(status(2, 1022).ok()) << "a dot and the dict's name before it";
  EXPECT_EQ(status(2, 1023).message(), refusal);
}

TEST_F(PytorchTest, WhatCannotBeReadIsNamedByFileAndTensor) {
  const auto source =
      OpenModel(File(One(opcodes::Tensor(opcodes::Storage("FloatStorage", "0", 4), 0, {4}, {1})),
                     {std::string(16, 'x')}));
  ASSERT_TRUE(source.ok()) << source.status().ToString();
  Bytes out(8);
  EXPECT_EQ((*source)->Read(0, {{0}, {1}}, out).message(),
            path_ + ": tensor 'w': 8 bytes for box [0:1]");
  EXPECT_EQ((*source)->Read(0, {{3}, {2}}, out).message(),
            path_ + ": tensor 'w': box [2] from [3] leaves shape [4]");
}

TEST_F(PytorchTest, OtherTypesAreListedAndNotRead) {
  const auto source = OpenModel(File(
      One(opcodes::Tensor(opcodes::Storage("BoolStorage", "0", 4), 0, {4}, {1})), {"\1\1\1\1"}));
  ASSERT_TRUE(source.ok());
  EXPECT_FALSE((*source)->tensors()[0].dtype);
  EXPECT_EQ((*source)->tensors()[0].type, "BoolStorage");
  Bytes bytes(4);
  EXPECT_THAT((*source)->Read(0, {{0}, {4}}, bytes).message(), HasSubstr("BoolStorage"));
}

TEST_F(PytorchTest, HostileTensorsAreRefused) {
  constexpr int64_t kLarge = int64_t{1} << 60;
  const auto refused = [&](int64_t elements, int64_t offset, const Shape& shape,
                           const Shape& stride, const std::string& why) {
    const Status status =
        OpenError(One(opcodes::Tensor(opcodes::Storage("FloatStorage", "0", elements), offset,
                                      shape, stride)),
                  {std::string(24, 'x')});
    EXPECT_THAT(status.message(), HasSubstr(why));
    EXPECT_THAT(status.message(), HasSubstr(path_ + ": tensor 'w'"));
  };
  refused(7, 0, {6}, {1}, "too few");
  refused(-1, 0, {6}, {1}, "too few");
  refused(INT64_MAX, 0, {6}, {1}, "too few");
  refused(6, 0, {7}, {1}, "leave the storage");
  refused(6, 1, {6}, {1}, "leave the storage");
  refused(6, -1, {1}, {1}, "leave the storage");
  refused(6, INT64_MAX, {2}, {1}, "leave the storage");
  refused(6, 0, {2}, {-1}, "leave the storage");
  refused(6, 0, {2}, {INT64_MAX}, "leave the storage");
  refused(6, 0, {3, 3}, {INT64_MAX / 2, INT64_MAX / 2}, "leave the storage");
  refused(6, 0, {-1}, {1}, "negative or too large");
  refused(6, 0, {kLarge, kLarge}, {0, 0}, "negative or too large");
  refused(6, 0, {kLarge}, {0}, "far larger than the file");
  refused(6, 0, {int64_t{1} << 62}, {0}, "far larger than the file");
  refused(6, 0, {2, 3}, {1}, "2 extents with 1 strides");
  EXPECT_THAT(
      OpenError(One(opcodes::Tensor(opcodes::Storage("FloatStorage", "1", 1), 0, {}, {})), {"xxxx"})
          .message(),
      HasSubstr("no storage '1'"));
}

TEST_F(PytorchTest, LongKeysOfStoragesAreNotCut) {
  const std::string key(64, 'k');
  const auto open = [&](const std::string& wanted) {
    std::filesystem::remove(path_);
    EXPECT_TRUE(
        WriteArchive(path_,
                     {{"data.pkl", opcodes::Pickle(One(opcodes::Tensor(
                                       opcodes::Storage("ByteStorage", wanted, 1), 0, {1}, {1})))},
                      {"data/" + key, "a"},
                      {"data/" + key + "b", "b"}})
            .ok());
    return OpenModel(path_);
  };
  const auto source = open(key + "b");
  ASSERT_TRUE(source.ok()) << source.status().ToString();
  Bytes bytes(1);
  ASSERT_TRUE((*source)->Read(0, {{0}, {1}}, bytes).ok());
  EXPECT_EQ(static_cast<char>(bytes[0]), 'b');
  EXPECT_THAT(open(key + "c").status().message(), HasSubstr("has no storage"));
  EXPECT_THAT(open(std::string(5000, 'k')).status().message(), HasSubstr("5000 bytes"));
}

TEST_F(PytorchTest, ThePlaceOfOneTensorUnderManyLongNamesIsBounded) {
  const std::string tensor = opcodes::Tensor(opcodes::Storage("ByteStorage", "0", 1), 0, {1}, {1});
  std::vector<std::pair<std::string, std::string>> items;
  for (int i = 0; i < 40'000; ++i) {
    items.emplace_back(opcodes::Text(fmt::format("{}", i)),
                       i == 0 ? tensor + std::string("q\0", 2) : std::string("h\0", 2));
  }
  const auto status = [&](size_t prefix) {
    return OpenError(
        opcodes::Dict({{opcodes::Text(std::string(prefix, 'p')), opcodes::Dict(items)}}), {"x"});
  };
  EXPECT_TRUE(status(100).ok()) << status(100).ToString();
  EXPECT_THAT(status(1000).message(), HasSubstr("names of the tensors"));
}

TEST_F(PytorchTest, HostilePicklesAreRefused) {
  EXPECT_THAT(
      OpenError(opcodes::Global("os", "system") + opcodes::Text("touch /tmp/x") + "\x85R", {})
          .message(),
      HasSubstr("pickled code is never run: global 'os.system'"));
  EXPECT_THAT(OpenError("K\x01", {}).message(), HasSubstr("no dict"));
  EXPECT_THAT(OpenError("}", {}).message(), HasSubstr("no tensors"));
  // A dict of itself, and one that doubles at every level.
  EXPECT_FALSE(OpenError("}q\x01" + opcodes::Text("self") + "h\x01s", {}).ok());
  std::string doubled = "}";
  for (int i = 0; i < 30; ++i) {
    doubled +=
        "q\x01"
        "0}" +
        opcodes::Text("a") + "h\x01s" + opcodes::Text("b") + "h\x01s";
  }
  EXPECT_FALSE(OpenError(doubled, {}).ok());
  const std::string tensor = opcodes::Tensor(opcodes::Storage("FloatStorage", "0", 1), 0, {}, {});
  EXPECT_THAT(OpenError(opcodes::Dict(
                            {{opcodes::Text("a.b"), tensor},
                             {opcodes::Text("a"), opcodes::Dict({{opcodes::Text("b"), tensor}})}}),
                        {"xxxx"})
                  .message(),
              HasSubstr("two tensors are called 'a.b'"));
}

TEST_F(PytorchTest, OtherFilesOfTorchAreNamed) {
  const auto message = [&](const std::string& content) {
    Spill(path_, content);
    return OpenModel(path_).status().message();
  };
  EXPECT_THAT(message(std::string("\x80\x02\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19.", 15)),
              HasSubstr("before 1.6"));
  EXPECT_THAT(message(std::string(257, '\0') + "ustar" + std::string(250, '\0')),
              HasSubstr("tar archive"));
  std::filesystem::remove(path_);
  ASSERT_TRUE(
      WriteArchive(path_, {{"data.pkl", "N."}, {"code/m.py", "x"}, {"constants.pkl", ")."}}).ok());
  EXPECT_THAT(OpenModel(path_).status().message(), HasSubstr("TorchScript"));
  std::filesystem::remove(path_);
  ASSERT_TRUE(WriteArchive(path_, {{"data.pkl", "N."}, {"byteorder", "big"}}).ok());
  EXPECT_THAT(OpenModel(path_).status().message(), HasSubstr("byte order 'big'"));
  const std::string longest(16, 'b');
  for (const auto& [order, named] : {std::pair(longest, true), std::pair(longest + "b", false)}) {
    std::filesystem::remove(path_);
    ASSERT_TRUE(WriteArchive(path_, {{"data.pkl", "N."}, {"byteorder", order}}).ok());
    const Status status = OpenModel(path_).status();
    EXPECT_FALSE(status.ok());
    EXPECT_EQ(status.message().find("byte order '" + order) != std::string::npos, named);
  }
}

TEST_F(PytorchTest, OtherFilesAreNotOfTorch) {
  EXPECT_FALSE(IsPytorchFile(folder_.path() + "/nothing"));
  for (const std::string& content : {std::string(), std::string("PK"), std::string(600, 'x')}) {
    Spill(path_, content);
    EXPECT_FALSE(IsPytorchFile(path_)) << content.size();
  }
  std::filesystem::remove(path_);
  ASSERT_TRUE(WriteArchive(path_, {{"other", "x"}}).ok());
  EXPECT_FALSE(IsPytorchFile(path_));
  // A packer may have put the pickle last.
  std::filesystem::remove(path_);
  ASSERT_TRUE(WriteArchive(path_, {{"data/0", std::string(5000, 'x')}, {"data.pkl", "N."}}).ok());
  EXPECT_TRUE(IsPytorchFile(path_));
}

TEST_F(PytorchTest, DamagedFilesAreNoCrash) {
  Random random(TestSeed());
  const std::string tensor =
      opcodes::Tensor(opcodes::Storage("FloatStorage", "0", 6), 0, {2, 3}, {3, 1});
  const std::string content = Slurp(File(One(tensor), {std::string(24, 'x')}));
  for (size_t size = 0; size < content.size(); ++size) {
    Spill(path_, content.substr(0, size));
    EXPECT_FALSE(OpenModel(path_).ok()) << size;
  }
  for (int round = 0; round < 3000; ++round) {
    std::string damaged = content;
    for (uint64_t n = 1 + random.Below(4); n > 0; --n) {
      damaged[random.Below(damaged.size())] = static_cast<char>(random.Below(256));
    }
    Spill(path_, damaged);
    const auto source = OpenModel(path_);
    for (size_t t = 0; source.ok() && t < (*source)->tensors().size(); ++t) {
      const FileTensor& facts = (*source)->tensors()[t];
      Bytes bytes(static_cast<size_t>(facts.bytes));
      (*source)->Read(t, WholeBox(facts.shape), bytes).IgnoreError("that it returns counts");
    }
  }
}

TEST_F(PytorchTest, IndexesAreChecked) {
  const std::string root = folder_.path() + "/m";
  Random random(3);
  State state;
  AddTensor(state, {"a", "", DType::kF32, {4}}, random);
  AddTensor(state, {"b", "", DType::kF32, {4}}, random);
  ASSERT_TRUE(
      Write({.path = root, .tensors = {}, .config = {}, .max_shard_bytes = 16}, state, random)
          .ok());
  ASSERT_TRUE(OpenModel(root).ok());
  const std::string index = root + "/pytorch_model.bin.index.json";
  const std::string first = "pytorch_model-00001-of-00002.bin";
  const std::string second = "pytorch_model-00002-of-00002.bin";
  const auto message = [&](const std::string& map) {
    Spill(index, "{\"weight_map\": {" + map + "}}");
    return OpenModel(root).status().message();
  };
  EXPECT_THAT(message("\"a\": \"" + second + "\""), HasSubstr("has no tensor 'a'"));
  EXPECT_THAT(message("\"a\": \"gone.bin\""), HasSubstr("gone.bin is missing"));
  EXPECT_THAT(message("\"a\": \"../m/" + first + "\""), HasSubstr("not the name of a file"));
  EXPECT_THAT(message("\"a\": 3"), HasSubstr("not the name of a file"));
  EXPECT_THAT(message(""), HasSubstr("no weight_map"));
  EXPECT_THAT(message("\"a\": \"x\", \"a\": \"y\""), HasSubstr("key 'a' twice"));
  std::filesystem::copy(root + "/" + first, root + "/third.bin");
  EXPECT_THAT(message("\"a\": \"" + first + "\", \"b\": \"" + second + "\", \"a \": \"third.bin\""),
              HasSubstr("has no tensor 'a '"));
  Spill(index, "[]");
  EXPECT_THAT(OpenModel(root).status().message(), HasSubstr("no weight_map"));
}

TEST(ShardsTest, ANewShardWhenTheNextDoesNotFit) {
  const auto split = [](const std::vector<int64_t>& sizes, int64_t limit) {
    std::vector<OutputTensor> tensors;
    for (const int64_t size : sizes) {
      tensors.push_back({.name = {}, .role = {}, .dtype = DType::kU8, .shape = {size}});
    }
    return SplitIntoShards(tensors, limit);
  };
  EXPECT_THAT(split({}, 10), ElementsAre(0));
  EXPECT_THAT(split({5, 5, 1}, 10), ElementsAre(0, 2));
  EXPECT_THAT(split({20, 1, 20}, 10), ElementsAre(0, 1, 2));
  EXPECT_THAT(split({1, 20, 0, 1}, 10), ElementsAre(0, 1, 3));
  const FileFormat format{.name = {},
                          .stem = "pytorch_model",
                          .suffix = ".bin",
                          .file_suffixes = {},
                          .open = {},
                          .create = {}};
  EXPECT_EQ(ShardName(format, 2, 7), "pytorch_model-00002-of-00007.bin");
  EXPECT_EQ(ShardName(format, 1, 1), "pytorch_model.bin");
}

}  // namespace
}  // namespace heddle::checkpoint
