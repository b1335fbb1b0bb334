/// \file
/// Goal: each opcode gives the value that Python gives, each argument of what is called is looked
/// at, and each bound holds from both sides.
#include <gmock/gmock.h>

#include "checkpoint/format/layout.h"
#include "checkpoint/formats/pytorch/pickle.h"
#include "tests/checkpoint/formats/pytorch_support.h"

namespace heddle::checkpoint {
namespace {

using ::testing::HasSubstr;
using Kind = PickleTree::Kind;
using namespace std::string_literals;  // NOLINT(google-build-using-namespace): texts with zeros

PickleTree Parsed(const std::string& value) {
  auto tree = ReadPickle(opcodes::Pickle(value));
  EXPECT_TRUE(tree.ok()) << tree.status().ToString() << ::testing::PrintToString(value);
  return tree.ok() ? *std::move(tree) : *ReadPickle("N.");
}

std::string Refusal(const std::string& value) {
  const Status status = ReadPickle(opcodes::Pickle(value)).status();
  return std::string(status.message());
}

TEST(PickleValuesTest, ANumberIsOfItsKind) {
  struct Case {
    std::string value;
    Kind kind;
    int64_t number = 0;
  };
  const std::vector<Case> cases = {
      {"\x88", Kind::kBool, 1},
      {"\x89", Kind::kBool, 0},
      {"I00\n", Kind::kBool, 0},
      {"I01\n", Kind::kBool, 1},
      {"I0\n", Kind::kInt, 0},
      {"I1\n", Kind::kInt, 1},
      {"L00\n", Kind::kInt, 0},
      {"L01L\n", Kind::kInt, 1},
      {"L-3\n", Kind::kInt, -3},
      {"I9223372036854775807\n", Kind::kInt, INT64_MAX},
      {"I9223372036854775808\n", Kind::kOther},
      {"L-9223372036854775809L\n", Kind::kOther},
      {"\x8A\x08\xFF\xFF\xFF\xFF\xFF\xFF\xFF\x7F", Kind::kInt, INT64_MAX},
      {"\x8A\x09\x00\x00\x00\x00\x00\x00\x00\x00\x00"s, Kind::kOther},
      {"\x8B\x01\x00\x00\x00\x7F"s, Kind::kInt, 127},
      {"M\x01\x02", Kind::kInt, 0x201},
      {"J\x01\x00\x00\x80"s, Kind::kInt, INT32_MIN + 1},
      {"N", Kind::kNone}};
  for (const Case& one : cases) {
    const PickleTree tree = Parsed(one.value);
    EXPECT_EQ(tree.kind(tree.root()), one.kind) << ::testing::PrintToString(one.value);
    if (one.kind == Kind::kBool || one.kind == Kind::kInt) {
      EXPECT_EQ(tree.Integer(tree.root()), one.number) << ::testing::PrintToString(one.value);
    }
  }
  for (const char* const text : {"I5L\n", "L\n", "LL\n", "L5LL\n", "I 5\n", "I00x\n"}) {
    EXPECT_THAT(Refusal(text), HasSubstr("an integer is not one")) << text;
  }
}

TEST(PickleValuesTest, ATextIsOfItsKindAndLength) {
  const std::vector<std::tuple<std::string, Kind>> cases = {{"U\x02"
                                                             "ab",
                                                             Kind::kText},
                                                            {"\x8C\x02"
                                                             "ab",
                                                             Kind::kText},
                                                            {"T\x02\x00\x00\x00"
                                                             "ab"s,
                                                             Kind::kText},
                                                            {"X\x02\x00\x00\x00"
                                                             "ab"s,
                                                             Kind::kText},
                                                            {"\x8D\x02\x00\x00\x00\x00\x00\x00\x00"
                                                             "ab"s,
                                                             Kind::kText},
                                                            {"C\x02"
                                                             "ab",
                                                             Kind::kBytes},
                                                            {"B\x02\x00\x00\x00"
                                                             "ab"s,
                                                             Kind::kBytes},
                                                            {"\x8E\x02\x00\x00\x00\x00\x00\x00\x00"
                                                             "ab"s,
                                                             Kind::kBytes},
                                                            {"\x96\x02\x00\x00\x00\x00\x00\x00\x00"
                                                             "ab"s,
                                                             Kind::kBytes}};
  for (const auto& [value, kind] : cases) {
    const PickleTree tree = Parsed(value);
    EXPECT_EQ(tree.kind(tree.root()), kind) << ::testing::PrintToString(value);
    EXPECT_EQ(tree.Text(tree.root()), "ab") << ::testing::PrintToString(value);
  }
}

/// Numbers of a container, in their order; a dict's are key, value, key, value.
std::vector<int64_t> NumbersOf(const PickleTree& tree, PickleId id) {
  std::vector<int64_t> numbers;
  for (size_t i = 0; i < tree.Size(id); ++i) {
    if (tree.kind(id) == Kind::kDict) {
      numbers.push_back(tree.Integer(tree.Key(id, i)));
    }
    numbers.push_back(tree.Integer(tree.Item(id, i)));
  }
  return numbers;
}

TEST(PickleValuesTest, AContainerHoldsItsItemsInTheirOrder) {
  const std::string one = "K\x01";
  const std::string two = "K\x02";
  const std::string three = "K\x03";
  const std::string four = "K\x04";
  using Numbers = std::vector<int64_t>;
  const std::vector<std::tuple<std::string, Kind, Numbers>> cases = {
      {")", Kind::kTuple, {}},
      {one + "\x85", Kind::kTuple, {1}},
      {one + two + "\x86", Kind::kTuple, {1, 2}},
      {one + two + three + "\x87", Kind::kTuple, {1, 2, 3}},
      {"(" + one + two + three + four + "t", Kind::kTuple, {1, 2, 3, 4}},
      {"]", Kind::kList, {}},
      {"(" + one + two + "l", Kind::kList, {1, 2}},
      {"]" + one + "a" + two + "a", Kind::kList, {1, 2}},
      {"](" + one + two + "e" + three + "a", Kind::kList, {1, 2, 3}},
      {"}", Kind::kDict, {}},
      {"(" + one + two + three + four + "d", Kind::kDict, {1, 2, 3, 4}},
      {"}" + one + two + "s" + three + four + "s", Kind::kDict, {1, 2, 3, 4}},
      {"}(" + one + two + three + four + "u", Kind::kDict, {1, 2, 3, 4}},
      // What stands below stays; '0' and '1' take the mark, and '1' all above it.
      {"(" + one + "0" + two + "t", Kind::kTuple, {2}},
      {"]" + one + "a(" + two + three + "1", Kind::kList, {1}},
      {"]" + one + "a(0" + two + "a", Kind::kList, {1, 2}},
      // Twice the same, from the stack and from the memo.
      {one + "2\x86", Kind::kTuple, {1, 1}},
      {one + "q\x07" + two + "r\x08\x01\x00\x00"s + "00h\x07j\x08\x01\x00\x00\x86"s,
       Kind::kTuple,
       {1, 2}},
      {one + "\x94" + two + "\x94" + "00h\x01h\x00\x86"s, Kind::kTuple, {2, 1}},
      // A place of the memo is written anew.
      {one + "q\x07" + two + "q\x07" + "00h\x07\x85", Kind::kTuple, {2}}};
  for (const auto& [value, kind, numbers] : cases) {
    const PickleTree tree = Parsed(value);
    ASSERT_EQ(tree.kind(tree.root()), kind) << ::testing::PrintToString(value);
    EXPECT_EQ(NumbersOf(tree, tree.root()), numbers) << ::testing::PrintToString(value);
  }
  for (const auto& [value, message] : std::vector<std::pair<std::string, std::string>>{
           {"K\x01s", "a value is missing"},
           {"(}K\x01u", "items for what is no dict"},
           {"}(K\x01u", "a key without a value"},
           {"K\x01(K\x02"
            "e",
            "items for what is no list"},
           {"K\x01(2", "a value is missing"},
           {"K\x01(\x85", "a value is missing"},
           {"K\x01(q\x01", "a value is missing"},
           {"K\x01(Nb", "a value is missing"},
           {"q\x02", "a value is missing"},
           {"K\x01q\x02h\x01", "memo entry 1 does not exist"},
           {"K\x01q\x02h\x03", "memo entry 3 does not exist"}}) {
    EXPECT_THAT(Refusal(value), HasSubstr(message)) << ::testing::PrintToString(value);
  }
}

TEST(PickleValuesTest, APersistentIdIsAStorageInEachOfItsParts) {
  const std::string text = opcodes::Text("storage");
  const std::string type = opcodes::Global("torch", "FloatStorage");
  const std::string key = opcodes::Text("0");
  const std::string device = opcodes::Text("cpu");
  const std::string count = opcodes::Int(3);
  const auto of = [](const std::vector<std::string>& parts) {
    std::string tuple = "(";
    for (const std::string& part : parts) {
      tuple += part;
    }
    return tuple + "tQ";
  };
  EXPECT_EQ(Refusal(of({text, type, key, device, count})), "");
  EXPECT_EQ(Refusal(of({text, type, key, device, count, "N"})), "") << "an older version's";
  const std::vector<std::vector<std::string>> wrong = {
      {text, type, key, device},
      {"N", type, key, device, count},
      {opcodes::Text("storages"), type, key, device, count},
      {text, text, key, device, count},
      {text, opcodes::Global("torch", "float32"), key, device, count},
      {text, opcodes::Global("collections", "OrderedDict"), key, device, count},
      {text, type, count, device, count},
      {text, type, key, device, key}};
  for (const auto& parts : wrong) {
    EXPECT_THAT(Refusal(of(parts)), HasSubstr("a persistent id is no storage of torch"));
  }
}

TEST(PickleValuesTest, ATensorIsOneInEachOfItsArguments) {
  const std::string storage = opcodes::Storage("FloatStorage", "0", 6);
  const std::string offset = opcodes::Int(0);
  const std::string shape = opcodes::Tuple({2, 3});
  const std::string stride = opcodes::Tuple({3, 1});
  const std::string type = opcodes::Global("torch", "float32");
  const auto call = [](const char* function, const std::vector<std::string>& arguments) {
    std::string text = opcodes::Global("torch._utils", function) + "(";
    for (const std::string& argument : arguments) {
      text += argument;
    }
    return text + "tR";
  };
  const char* const plain = "_rebuild_tensor";
  const char* const v2 = "_rebuild_tensor_v2";
  const char* const v3 = "_rebuild_tensor_v3";
  EXPECT_EQ(Refusal(call(plain, {storage, offset, shape, stride})), "");
  EXPECT_EQ(Refusal(call(v2, {storage, offset, shape, stride, "\x89", "N"})), "");
  EXPECT_EQ(Refusal(call(v3, {storage, offset, shape, stride, "\x89", "N", type})), "");
  const PickleTree tree = Parsed(call(v3, {storage, offset, shape, stride, "\x89", "N", type}));
  EXPECT_EQ(tree.Tensor(tree.root()).type, "float32");
  const PickleTree older = Parsed(call(plain, {storage, opcodes::Int(5), shape, stride}));
  EXPECT_EQ(older.Tensor(older.root()).type, "");
  EXPECT_EQ(older.Tensor(older.root()).offset, 5);
  const std::string list = "](" + opcodes::Int(2) + opcodes::Int(3) + "e";
  EXPECT_EQ(Refusal(call(plain, {storage, offset, list, list})), "") << "lists do as well";
  for (const std::string& value :
       {call(plain, {storage, offset, shape}), call(v2, {storage, offset, shape, stride, "\x89"}),
        call(v3, {storage, offset, shape, stride, "\x89", "N"}),
        call(v3, {storage, offset, shape, stride, "\x89", "N", "N"}),
        call(v3, {storage, offset, shape, stride, "\x89", "N",
                  opcodes::Global("torch", "FloatStorage")}),
        call(plain, {"N", offset, shape, stride}), call(plain, {storage, "N", shape, stride}),
        call(plain, {storage, offset, "N", stride}), call(plain, {storage, offset, shape, "N"}),
        call(plain, {storage, offset, shape, "(Nt"}), call(plain, {storage, offset, "}", stride}),
        call(plain, {storage, offset, opcodes::Tuple(Shape(kMaxRank + 1, 1)), stride}),
        call(plain, {storage, offset, shape, opcodes::Tuple(Shape(kMaxRank + 1, 1))})}) {
    EXPECT_THAT(Refusal(value), HasSubstr("a tensor is not (storage, offset, shape, strides, …)"))
        << ::testing::PrintToString(value);
  }
}

TEST(PickleValuesTest, WhatIsCalledHasAMeaningOrIsRefused) {
  const std::string tensor = opcodes::Tensor(opcodes::Storage("FloatStorage", "0", 1), 0, {1}, {1});
  const auto kind = [](const std::string& value) {
    const PickleTree tree = Parsed(value);
    return tree.kind(tree.root());
  };
  const std::string size = opcodes::Global("torch", "Size");
  EXPECT_EQ(kind(size + "(K\x05\x85tR"), Kind::kTuple);
  EXPECT_THAT(Refusal(size + ")R"), HasSubstr("a torch.Size of something else than a tuple"));
  EXPECT_THAT(Refusal(size + "K\x05\x85R"),
              HasSubstr("a torch.Size of something else than a tuple"));
  EXPECT_THAT(Refusal(size + "))\x86R"), HasSubstr("a torch.Size of something else than a tuple"));
  EXPECT_EQ(kind(opcodes::Global("torch", "device") + opcodes::Text("cpu") + "\x85R"),
            Kind::kOther);
  for (const char* const name : {"_rebuild_parameter", "_rebuild_parameter_with_state"}) {
    const std::string parameter = opcodes::Global("torch._utils", name);
    EXPECT_EQ(kind(parameter + "(" + tensor + "\x88NtR"), Kind::kTensor);
    EXPECT_THAT(Refusal(parameter + ")R"), HasSubstr("a parameter without a tensor"));
    EXPECT_THAT(Refusal(parameter + "N\x85R"), HasSubstr("a parameter without a tensor"));
  }
  EXPECT_THAT(Refusal(opcodes::Global("torch", "FloatStorage") + ")R"),
              HasSubstr("'FloatStorage' cannot be called"));
  EXPECT_THAT(Refusal("N)R"), HasSubstr("what is called is something else"));
  EXPECT_THAT(Refusal(size + "NR"), HasSubstr("a list of arguments is something else"));
  EXPECT_THAT(Refusal("N" + opcodes::Text("Size") + "\x93"),
              HasSubstr("a global's module is something else"));
  EXPECT_THAT(Refusal(opcodes::Text("torch") + "N\x93"),
              HasSubstr("a global's name is something else"));
  EXPECT_EQ(kind(opcodes::Text("torch") + opcodes::Text("Size") + "\x93"), Kind::kGlobal);
  // The attributes of a tensor, and of a dict that is no Namespace, are left out.
  EXPECT_EQ(kind(tensor + "}b"), Kind::kTensor);
  EXPECT_EQ(kind(tensor + "Nb"), Kind::kTensor);
  const std::string attributes = opcodes::Dict({{"K\x01", "K\x02"}});
  const PickleTree plain = Parsed("}" + attributes + "b");
  EXPECT_EQ(plain.Size(plain.root()), 0U);
  const PickleTree space =
      Parsed(opcodes::Global("argparse", "Namespace") + ")\x81" + attributes + "b");
  EXPECT_EQ(NumbersOf(space, space.root()), (std::vector<int64_t>{1, 2}));
}

TEST(PickleValuesTest, WhatReachesABoundIsReadAndWhatExceedsItIsNot) {
  const auto repeated = [](const std::string& piece, size_t count) {
    std::string text;
    text.reserve(piece.size() * count);
    for (size_t i = 0; i < count; ++i) {
      text += piece;
    }
    return text;
  };
  const auto marks = [&](size_t count) {
    return "N" + repeated("(", count) + repeated("1", count);
  };
  EXPECT_EQ(Refusal(marks(kMaxPickleDepth)), "");
  EXPECT_THAT(Refusal(marks(kMaxPickleDepth + 1)), HasSubstr("more than 1000 levels are not read"));
  EXPECT_EQ(Refusal("Nr\x7F\x84\x1E\x00"s), "");
  EXPECT_THAT(Refusal("Nr\x80\x84\x1E\x00"s),
              HasSubstr("more than 2000000 memo entries are not read"));
  const auto lists = [&](size_t count) { return repeated("]0", count - 1) + "]"; };
  EXPECT_EQ(Refusal(lists(kMaxPickleContainers)), "");
  EXPECT_THAT(Refusal(lists(kMaxPickleContainers + 1)),
              HasSubstr("more than 500000 lists and dicts are not read"));
  const std::string id = "(" + opcodes::Text("storage") + opcodes::Global("torch", "FloatStorage") +
                         opcodes::Text("0") + "N" + opcodes::Int(1) + "tq\x01";
  const auto storages = [&](size_t count) { return id + "Q" + repeated("0h\x01Q", count - 1); };
  EXPECT_EQ(Refusal(storages(kMaxPickleTensors)), "");
  EXPECT_THAT(Refusal(storages(kMaxPickleTensors + 1)),
              HasSubstr("more than 150000 storages are not read"));
  const std::string call = opcodes::Global("torch._utils", "_rebuild_tensor") + "q\x02" + "(" + id +
                           "Q" + opcodes::Int(0) + "))tq\x03R";
  const auto tensors = [&](size_t count) { return call + repeated("0h\x02h\x03R", count - 1); };
  EXPECT_EQ(Refusal(tensors(kMaxPickleTensors)), "");
  EXPECT_THAT(Refusal(tensors(kMaxPickleTensors + 1)),
              HasSubstr("more than 150000 tensors are not read"));
  const auto most = static_cast<size_t>(kMaxPickleBytes);
  EXPECT_EQ(ReadPickle("X" + opcodes::Raw(static_cast<uint32_t>(most - 6)) +
                       std::string(most - 6, 'x') + ".")
                .status()
                .message(),
            "");
  EXPECT_EQ(ReadPickle(std::string(most + 1, '.')).status().message(),
            "a pickle of 33554433 bytes; at most 33554432 are read");
}

}  // namespace
}  // namespace heddle::checkpoint
