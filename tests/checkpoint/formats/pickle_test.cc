/// \file
/// Goal: state dicts become values; nothing else than state dicts does.
#include "checkpoint/formats/pytorch/pickle.h"

#include <gmock/gmock.h>
#include <sys/resource.h>

#include "tests/checkpoint/formats/pytorch_support.h"
#include "tests/checkpoint/support.h"
#include "tests/support/sanitized.h"

namespace heddle::checkpoint {
namespace {

using ::testing::HasSubstr;
using Kind = PickleTree::Kind;
using namespace std::string_literals;  // NOLINT(google-build-using-namespace): texts with zeros

PickleTree Parsed(const std::string& value) {
  auto tree = ReadPickle(opcodes::Pickle(value));
  EXPECT_TRUE(tree.ok()) << tree.status().ToString();
  return tree.ok() ? *std::move(tree) : *ReadPickle("N.");
}

Status Error(const std::string& value) {
  return ReadPickle(opcodes::Pickle(value)).status();
}

TEST(PickleTest, Numbers) {
  const auto integer = [](const std::string& value) {
    const PickleTree tree = Parsed(value);
    EXPECT_EQ(tree.kind(tree.root()), Kind::kInt);
    return tree.Integer(tree.root());
  };
  EXPECT_EQ(integer("K\xFF"), 255);
  EXPECT_EQ(integer("M\xFF\xFF"), 65535);
  EXPECT_EQ(integer("J\xFE\xFF\xFF\xFF"), -2);
  EXPECT_EQ(integer("\x8A\x00"s), 0);
  EXPECT_EQ(integer("\x8A\x01\x80"), -128);
  EXPECT_EQ(integer("\x8A\x02\xFF\x00"s), 255);
  EXPECT_EQ(integer("\x8B\x02\x00\x00\x00\xFF\x7F"s), 32767);
  EXPECT_EQ(integer(opcodes::Int(INT64_MIN)), INT64_MIN);
  EXPECT_EQ(integer("I-17\n"), -17);
  EXPECT_EQ(integer("L99L\n"), 99);
  const PickleTree large = Parsed("\x8A\x09\x00\x00\x00\x00\x00\x00\x00\x00\x01"s);
  EXPECT_EQ(large.kind(large.root()), Kind::kOther);
  const PickleTree number = Parsed("G\x3F\xF8\x00\x00\x00\x00\x00\x00"s);
  EXPECT_EQ(number.Float(number.root()), 1.5);
  const PickleTree truth = Parsed("I01\n");
  EXPECT_EQ(truth.kind(truth.root()), Kind::kBool);
}

TEST(PickleTest, ContainersOfAllProtocols) {
  // Protocol 4, as Python's pickle.dumps({"a": [1, (2, "b")], "c": b"x"}, 4).
  const auto tree = ReadPickle(
      "\x80\x04\x95\x1b\x00\x00\x00\x00\x00\x00\x00}\x94(\x8c\x01"
      "a\x94]\x94(K\x01K\x02\x8c\x01"
      "b\x94\x86\x94"
      "e\x8c\x01"
      "c\x94"
      "C\x01x\x94u."s);
  ASSERT_TRUE(tree.ok()) << tree.status().ToString();
  const PickleId root = tree->root();
  ASSERT_EQ(tree->kind(root), Kind::kDict);
  ASSERT_EQ(tree->Size(root), 2);
  EXPECT_EQ(tree->Text(tree->Key(root, 0)), "a");
  const PickleId list = tree->Item(root, 0);
  ASSERT_EQ(tree->kind(list), Kind::kList);
  const PickleId tuple = tree->Item(list, 1);
  ASSERT_EQ(tree->kind(tuple), Kind::kTuple);
  EXPECT_EQ(tree->Integer(tree->Item(tuple, 0)), 2);
  EXPECT_EQ(tree->Text(tree->Item(tuple, 1)), "b");
  EXPECT_EQ(tree->Text(tree->Item(root, 1)), "x");
}

TEST(PickleTest, TensorsParametersAndNamespaces) {
  const std::string tensor =
      opcodes::Tensor(opcodes::Storage("HalfStorage", "7", 12), 1, {2, 3}, {3, 1});
  const std::string parameter = opcodes::Global("torch._utils", "_rebuild_parameter") + "(" +
                                tensor + "\x88" + opcodes::Global("collections", "OrderedDict") +
                                ")RtR";
  const PickleTree tree = Parsed(opcodes::Global("argparse", "Namespace") + ")\x81" +
                                 opcodes::Dict({{opcodes::Text("weight"), parameter}}) + "b");
  ASSERT_EQ(tree.kind(tree.root()), Kind::kDict);
  ASSERT_EQ(tree.Size(tree.root()), 1);
  const PickleId id = tree.Item(tree.root(), 0);
  ASSERT_EQ(tree.kind(id), Kind::kTensor);
  const PickledTensor& found = tree.Tensor(id);
  EXPECT_EQ(tree.Storage(found.storage).type, "HalfStorage");
  EXPECT_EQ(tree.Storage(found.storage).key, "7");
  EXPECT_EQ(tree.Storage(found.storage).elements, 12);
  EXPECT_EQ(found.offset, 1);
  EXPECT_EQ(tree.ShapeOf(found.shape), (Shape{2, 3}));
  EXPECT_EQ(tree.ShapeOf(found.stride), (Shape{3, 1}));
}

TEST(PickleTest, AttributesOfOrderedDictsAreLeftOut) {
  const PickleTree tree = Parsed(opcodes::Global("collections", "OrderedDict") + ")R" +
                                 opcodes::Dict({{opcodes::Text("_metadata"), "N"}}) + "b");
  EXPECT_EQ(tree.Size(tree.root()), 0);
}

TEST(PickleTest, CodeIsNeverRun) {
  for (const auto& [module, name] :
       std::vector<std::pair<std::string, std::string>>{{"os", "system"},
                                                        {"posix", "system"},
                                                        {"builtins", "eval"},
                                                        {"torch", "load"},
                                                        {"torch.storage", "_load_from_bytes"},
                                                        {"torch.nn.modules.linear", "Linear"},
                                                        {"torch", "FloatStorageX"},
                                                        {"collections", "OrderedDict.__init__"}}) {
    const std::string wanted = "pickled code is never run: global '" + module + "." + name + "'";
    EXPECT_THAT(Error(opcodes::Global(module, name) + opcodes::Text("true") + "\x85R").message(),
                HasSubstr(wanted));
    EXPECT_THAT(Error(opcodes::Text(module) + opcodes::Text(name) + "\x93").message(),
                HasSubstr(wanted));
  }
  // INST, OBJ, REDUCE of what is no function, EXT1, buffers, reduction of a persistent id by line.
  for (const std::string value :
       {"(ios\nsystem\n", "(cos\nsystem\no", "K\x01)R", "\x82\x01", "\x97", "P1\n"}) {
    EXPECT_FALSE(Error(value).ok()) << value;
  }
}

TEST(PickleTest, NonsenseIsRefusedWithItsPlace) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"", "byte 2: a value is missing"},
      {"0", "byte 2: a mark is missing"},
      {"1", "byte 2: a mark is missing"},
      {"2", "byte 2: a value is missing"},
      {"t", "byte 2: a mark is missing"},
      {"l", "byte 2: a mark is missing"},
      {"u", "byte 2: a mark is missing"},
      {"a", "byte 2: a value is missing"},
      {"]K\x01s", "byte 5: items for what is no dict"},
      {"}K\x01"
       "a",
       "byte 5: items for what is no list"},
      {"(K\x01", "byte 5: a mark is left"},
      {"(K\x01"
       "d",
       "byte 5: a key without a value"},
      {"h\x01", "byte 2: memo entry 1 does not exist"},
      {"j\xFF\xFF\xFF\x7F", "byte 2: memo entry 2147483647 does not exist"},
      {"r\xFF\xFF\xFF\xFF", "byte 2: a value is missing"},
      {"Nr\xFF\xFF\xFF\xFF", "byte 3: more than 2000000 memo entries are not read"},
      {"q\x01", "byte 2: a value is missing"},
      {"\x94", "byte 2: a value is missing"},
      {"X\xFF\xFF\xFF\xFF", "byte 2: truncated: 4294967295 bytes wanted, 1 left"},
      {"\x8D\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF",
       "byte 2: truncated: 18446744073709551615 bytes wanted, 1 left"},
      {"I\n", "byte 2: an integer is not one"},
      {"I1x\n", "byte 2: an integer is not one"},
      {"Icut", "byte 2: truncated within a line"},
      {"\x80\x05N", ""},
      {"\x80\x06", "byte 2: pickle protocol 6 is not read"},
      {"NQ", "byte 3: a persistent id is something else"},
      {")Q", "byte 3: a persistent id is no storage of torch"},
      {"NNb", "byte 4: attributes for what has none"},
      {"}Nb", "byte 4: attributes for what has none"},
      {"K\x01}b", "byte 5: attributes for what has none"},
      {"\x85", "byte 2: a value is missing"},
      {"N\x86", "byte 3: a value is missing"},
      {"NN\x87", "byte 4: a value is missing"}};
  for (const auto& [value, message] : cases) {
    const Status status = Error(value);
    EXPECT_EQ(status.ok(), message.empty()) << ::testing::PrintToString(value);
    EXPECT_THAT(status.message(), HasSubstr(message)) << ::testing::PrintToString(value);
  }
  const std::string storage = opcodes::Storage("FloatStorage", "0", 1);
  const std::string function = opcodes::Global("torch._utils", "_rebuild_tensor_v2");
  for (const std::string& arguments : std::vector<std::string>{
           ")", "(" + storage + "t", "(NNNNNNt", "(" + storage + "K\x00NN\x89Nt"s,
           "(" + storage + "K\x00"s + opcodes::Tuple(Shape(17, 1)) + opcodes::Tuple(Shape(17, 1)) +
               "\x89Nt",
           "(" + storage + "K\x00(Nt(Nt\x89Nt"s}) {
    EXPECT_THAT(Error(function + arguments + "R").message(),
                HasSubstr("a tensor is not (storage, offset, shape, strides, …)"));
  }
  // As many dimensions as there may be.
  EXPECT_TRUE(Error(function + "(" + storage + "K\x00"s + opcodes::Tuple(Shape(16, 1)) +
                    opcodes::Tuple(Shape(16, 1)) + "\x89NtR")
                  .ok());
}

TEST(PickleTest, OrderedDictsOfPairs) {
  const std::string dict = opcodes::Global("collections", "OrderedDict");
  const auto of = [&](const std::string& pairs) { return dict + "(](" + pairs + "etR"; };
  const PickleTree tree =
      Parsed(of("K\x01K\x02\x86](K\x03K\x04"
                "e"));
  ASSERT_EQ(tree.kind(tree.root()), Kind::kDict);
  ASSERT_EQ(tree.Size(tree.root()), 2U);
  EXPECT_EQ(tree.Integer(tree.Key(tree.root(), 0)), 1);
  EXPECT_EQ(tree.Integer(tree.Item(tree.root(), 0)), 2);
  EXPECT_EQ(tree.Integer(tree.Item(tree.root(), 1)), 4);
  EXPECT_THAT(Error(of("K\x01")).message(), HasSubstr("something else than pairs"));
  EXPECT_THAT(Error(of("K\x01\x85")).message(), HasSubstr("something else than pairs"));
  EXPECT_THAT(Error(of("K\x01K\x02K\x03\x87")).message(), HasSubstr("something else than pairs"));
  EXPECT_THAT(Error(dict + "K\x01\x85R").message(), HasSubstr("something else than a list"));
}

TEST(PickleTest, AGlobalsNameIsBounded) {
  const auto message = [](size_t bytes) {
    return Error(opcodes::Global("m", std::string(bytes - 1, 'n'))).message();
  };
  EXPECT_THAT(message(256), HasSubstr("pickled code is never run"));
  EXPECT_THAT(message(257), HasSubstr("a global's name has 257 bytes"));
}

TEST(PickleTest, NestingAndCyclesAreNoRecursion) {
  std::string deep = "N";
  for (int i = 0; i < 1'000'000; ++i) {
    deep += '\x85';
  }
  EXPECT_TRUE(ReadPickle(opcodes::Pickle(deep)).ok());
  EXPECT_THAT(Error(std::string(1'000'000, '(')).message(), HasSubstr("1000 levels"));
  const PickleTree own = Parsed(
      "]q\x01h\x01"
      "a");
  EXPECT_EQ(own.Item(own.root(), 0), own.root());
}

int64_t PeakMemory() {
  struct rusage usage {};
  EXPECT_EQ(::getrusage(RUSAGE_SELF, &usage), 0);
  return int64_t{usage.ru_maxrss} << 10;
}

TEST(PickleTest, MemoryIsBounded) {
  const int64_t before = PeakMemory();
  // As long as may be: a beginning, and a piece that is repeated.
  const std::string storage = opcodes::Storage("FloatStorage", "0", 1);
  for (const auto& [head, piece] : std::vector<std::pair<std::string, std::string>>{
           {"", "N"},
           {"", "N0"},
           {"", "]"},
           {"", "(Nl0"},
           {"", "}NNs0"},
           {"]", "Na"},
           {"N", "\x85"},
           {"", ")Nr\x7F\x84\x1E\x00"s},
           {storage, "2"},
           {"", opcodes::Tensor(storage, 0, {}, {}) + "0"},
           {"]q\x01(" + std::string(900'000, 'N') + "e", "h\x01(h\x01t0"}}) {
    std::string text;
    text.reserve(static_cast<size_t>(kMaxPickleBytes));
    text += head;
    while (text.size() + piece.size() <= static_cast<size_t>(kMaxPickleBytes)) {
      text += piece;
    }
    EXPECT_FALSE(ReadPickle(std::move(text)).ok());
    if (!kSanitized) {  // A sanitizer's memory is its own.
      EXPECT_LT(PeakMemory() - before, int64_t{160} << 20) << ::testing::PrintToString(piece);
    }
  }
}

TEST(PickleTest, TruncatedAtEveryByte) {
  const std::string text = opcodes::Pickle(
      opcodes::Dict({{opcodes::Text("w"), opcodes::Tensor(opcodes::Storage("FloatStorage", "0", 6),
                                                          0, {2, 3}, {3, 1})}}));
  ASSERT_TRUE(ReadPickle(text).ok());
  for (size_t size = 0; size < text.size(); ++size) {
    EXPECT_FALSE(ReadPickle(text.substr(0, size)).ok()) << size;
  }
}

TEST(PickleTest, DamageIsNoCrash) {
  Random random(TestSeed());
  const std::string text = opcodes::Pickle(
      opcodes::Dict({{opcodes::Text("w"), opcodes::Tensor(opcodes::Storage("FloatStorage", "0", 6),
                                                          0, {2, 3}, {3, 1})}}));
  for (int round = 0; round < 100'000; ++round) {
    std::string damaged = text;
    for (uint64_t n = 1 + random.Below(4); n > 0; --n) {
      damaged[random.Below(damaged.size())] = static_cast<char>(random.Below(256));
    }
    ReadPickle(damaged).status().IgnoreError("that it returns is what counts");
  }
}

}  // namespace
}  // namespace heddle::checkpoint
