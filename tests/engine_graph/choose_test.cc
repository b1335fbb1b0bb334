// How a form of a tensor is had from others, and which rule a node takes.
#include "engine/graph/sharding/choose.h"

#include <gtest/gtest.h>

namespace heddle::graph {
namespace {

using Kind = Placement::Kind;

const Range kNone = {};
const TensorType kType = {DType::kF32, {2, 6}};
constexpr int64_t kBytes = 48;

const Sharding kWhole = {};
const Sharding kRows = {.kind = Kind::kShard, .dim = 0, .held = {{0, 1}, {1, 2}}};
const Sharding kColumns = {.kind = Kind::kShard, .dim = 1, .held = {{0, 4}, {4, 6}}};
const Sharding kShared = {.kind = Kind::kShard, .dim = 1, .held = {{0, 5}, {3, 6}}};
const Sharding kAddends = {.kind = Kind::kPartial, .held = {{0, 1}, {0, 1}}};
const Sharding kFirstAddends = {.kind = Kind::kPartial, .held = {{0, 1}, kNone}};
const Sharding kLargest = {.kind = Kind::kPartial, .op = ReduceOp::kMax, .held = {{0, 1}, {0, 1}}};
const Sharding kSharedAddends = {.kind = Kind::kPartial, .dim = 1, .held = {{0, 5}, {3, 6}}};

struct WayCase {
  std::vector<Sharding> versions;
  Sharding wanted;
  std::optional<Way> way;
};

TEST(ChooseTest, TheWayHasTheFewestBytes) {
  using Form = ExchangeForm;
  const std::vector<WayCase> cases = {
      {{kWhole}, kWhole, Way{}},
      {{kRows, kWhole}, kWhole, Way{.form = {}, .version = 1}},
      {{kWhole}, kColumns, Way{.form = Form::kSlice}},
      {{kShared}, kColumns, Way{.form = Form::kSlice}},
      {{kRows}, kWhole, Way{.form = Form::kGather, .bytes = kBytes}},
      {{kAddends, kRows}, kWhole, Way{.form = Form::kGather, .version = 1, .bytes = kBytes}},
      {{kAddends}, kWhole, Way{.form = Form::kSum, .bytes = 2 * kBytes}},
      {{kSharedAddends}, kWhole, Way{.form = Form::kSum, .bytes = 2 * kBytes}},
      {{kLargest}, kWhole, Way{.form = Form::kMax, .bytes = 2 * kBytes}},
      {{kAddends}, kRows, Way{.form = Form::kScatter, .bytes = kBytes}},
      {{kSharedAddends}, kColumns, Way{.form = Form::kScatter, .bytes = kBytes}},
      {{kSharedAddends},
       kRows,
       Way{.form = Form::kSlice, .through_whole = true, .bytes = 2 * kBytes}},
      {{kLargest}, kRows, Way{.form = Form::kSlice, .through_whole = true, .bytes = 2 * kBytes}},
      {{kRows}, kColumns, Way{.form = Form::kSlice, .through_whole = true, .bytes = kBytes}},
      {{kAddends}, kAddends, Way{}},
      {{kFirstAddends}, kAddends, Way{.form = Form::kFill}},
      {{kAddends}, kFirstAddends, std::nullopt},
      {{kLargest}, kAddends, std::nullopt},
      {{kSharedAddends}, kAddends, std::nullopt},
      {{kWhole}, kAddends, std::nullopt},
  };
  for (size_t i = 0; i < cases.size(); ++i) {
    const auto way =
        WayTo({.type = kType, .parameter = false, .versions = cases[i].versions}, cases[i].wanted);
    ASSERT_EQ(way.has_value(), cases[i].way.has_value()) << i;
    if (way) {
      EXPECT_EQ(way->form, cases[i].way->form) << i;
      EXPECT_EQ(way->through_whole, cases[i].way->through_whole) << i;
      EXPECT_EQ(way->bytes, cases[i].way->bytes) << i;
      EXPECT_TRUE(way->through_whole || way->version == cases[i].way->version) << i;
    }
  }
}

Choice ChoiceOf(const Sharding& x, const Sharding& weight) {
  return Choose(*FindOperator("linear"), {},
                std::vector<Operand>{
                    {.type = kType, .parameter = false, .versions = {x}},
                    {.type = {DType::kF32, {6, 6}}, .parameter = true, .versions = {weight}}},
                std::vector<Target>{{.type = kType, .placed = {}, .parameter = {}}});
}

// A whole weight is not sliced to save the gather, and a cut one not gathered.
TEST(ChooseTest, ParametersAreUsedAsTheyArePlaced) {
  EXPECT_EQ(ChoiceOf(kWhole, kWhole).price, (Price{0, 0, 1, 0}));
  const Choice gathers = ChoiceOf(kColumns, kWhole);
  EXPECT_EQ(gathers.price.misplaced, 0);
  EXPECT_EQ(gathers.price.bytes, kBytes);
  EXPECT_EQ(gathers.outputs[0].kind, Kind::kReplicate);
  const Choice row = ChoiceOf(kColumns, kColumns);
  EXPECT_EQ(row.price.bytes, 0);
  EXPECT_EQ(row.outputs[0].kind, Kind::kPartial);
  EXPECT_EQ(row.division.shares, (std::vector<Range>{{0, 4}, {4, 6}}));
  const Choice column = ChoiceOf(kColumns, {.kind = Kind::kShard, .dim = 0, .held = kColumns.held});
  EXPECT_EQ(column.price.misplaced, 0);
  EXPECT_EQ(column.price.bytes, kBytes);
  EXPECT_TRUE(Alike(column.outputs[0], kColumns));
}

// A partial input passes through a linear operator, but no value is added to it.
TEST(ChooseTest, AddendsPassThroughWhatIsLinear) {
  EXPECT_TRUE(Alike(ChoiceOf(kAddends, kWhole).outputs[0], kAddends));
  const Operator& add = *FindOperator("add");
  auto sum_of = [&](const Sharding& a, const Sharding& b) {
    return Choose(add, {},
                  std::vector<Operand>{{.type = kType, .parameter = false, .versions = {a}},
                                       {.type = kType, .parameter = false, .versions = {b}}},
                  std::vector<Target>{{.type = kType, .placed = {}, .parameter = {}}});
  };
  EXPECT_EQ(sum_of(kAddends, kAddends).price.bytes, 0);
  EXPECT_TRUE(Alike(sum_of(kAddends, kFirstAddends).outputs[0], kAddends));
  EXPECT_EQ(sum_of(kAddends, kFirstAddends).price.bytes, 0);
  EXPECT_EQ(sum_of(kAddends, kWhole).price.bytes, 2 * kBytes);
  EXPECT_EQ(sum_of(kAddends, kRows).price.bytes, kBytes);
  EXPECT_TRUE(Alike(sum_of(kAddends, kRows).outputs[0], kRows));
}

// What an output has to be made of it is priced, too: each member does all of the work rather than
// gather what it shared.
TEST(ChooseTest, OutputsThatArePlacedArePriced) {
  const Operand both = {.type = kType, .parameter = false, .versions = {kColumns, kWhole}};
  const auto choice_for = [&](const Sharding& placed) {
    return Choose(*FindOperator("add"), {}, std::vector<Operand>{both, both},
                  std::vector<Target>{{.type = kType, .placed = placed, .parameter = {}}});
  };
  EXPECT_TRUE(Alike(choice_for(kWhole).outputs[0], kWhole));
  EXPECT_EQ(choice_for(kWhole).price.bytes, 0);
  EXPECT_TRUE(Alike(choice_for(kColumns).outputs[0], kColumns));
}

// Of divisions that need no exchange, the one whose most loaded member has the least work.
TEST(ChooseTest, TheWorkIsDividedEvenlyWhereThatSendsNoMore) {
  const Sharding even = {.kind = Kind::kShard, .dim = 1, .held = {{0, 3}, {3, 6}}};
  const Sharding lopsided = {.kind = Kind::kShard, .dim = 1, .held = {{0, 1}, {1, 6}}};
  const Operand both = {
      .type = kType, .parameter = false, .versions = {lopsided, kColumns, even, kWhole}};
  const Choice choice = Choose(*FindOperator("add"), {}, std::vector<Operand>{both, both},
                               std::vector<Target>{{.type = kType, .placed = {}, .parameter = {}}});
  EXPECT_TRUE(Alike(choice.outputs[0], even));
  EXPECT_EQ(choice.price.bytes, 0);
  EXPECT_EQ(choice.price.largest, 0.5);
}

}  // namespace
}  // namespace heddle::graph
