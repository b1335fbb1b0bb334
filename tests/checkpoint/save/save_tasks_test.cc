/// \file
/// A save as data: which boxes are refused and by which sentence, and what is listed of the others.
#include "checkpoint/save/save_tasks.h"

#include <functional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>

#include "base/bytes.h"

namespace heddle::checkpoint {
namespace {

using ::testing::ElementsAre;

/// Memory that views may look at; its content does not matter.
const Bytes& Memory() {
  static const Bytes memory(1 << 16);
  return memory;
}

BoxView ViewOf(StoredBox stored) {
  const auto bytes = static_cast<size_t>(ElementCount(stored.box.extent) * SizeOf(stored.dtype));
  return {.stored = std::move(stored), .bytes = std::span(Memory()).first(bytes)};
}

BoxView ViewOf(const std::string& name, const Shape& shape, DType dtype = DType::kF32) {
  return ViewOf({name, "master", dtype, shape, WholeBox(shape)});
}

TEST(SaveTasksTest, ABoxThatCannotBeStoredIsNamed) {
  const std::vector<std::pair<std::function<void(BoxView&)>, std::string>> cases = {
      {[](BoxView& v) { v.stored.name.clear(); },
       "tensor '' (master): no name, no role or more than 16 dimensions"},
      {[](BoxView& v) { v.stored.role.clear(); },
       "tensor 'w' (): no name, no role or more than 16 dimensions"},
      {[](BoxView& v) { v.stored.global_shape = Shape(17, 1); },
       "tensor 'w' (master): no name, no role or more than 16 dimensions"},
      {[](BoxView& v) {
         v.stored.global_shape = {-4, 6};
       },
       "tensor 'w' (master): shape [-4, 6] is negative or too large"},
      {[](BoxView& v) { v.stored.stored_as = DType::kF16; },
       "tensor 'w' (master): fp32 elements cannot be stored as fp16"},
      {[](BoxView& v) {
         v.stored.dtype = DType::kF64;
         v.stored.stored_as = DType::kBF16;
       },
       "tensor 'w' (master): fp64 elements cannot be stored as bf16"},
      {[](BoxView& v) {
         v.stored.box.offset = {1, 0};
       },
       "tensor 'w' (master): box [4, 6] from [1, 0] leaves shape [4, 6]"},
      {[](BoxView& v) { v.bytes = v.bytes.first(95); },
       "tensor 'w' (master): 95 bytes for box [0:4, 0:6] of fp32"}};
  for (const auto& [change, message] : cases) {
    BoxView view = ViewOf("w", {4, 6});
    change(view);
    const Status status = StagingBytes({{view}}).status();
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument) << message;
    EXPECT_EQ(status.message(), message);
  }
  EXPECT_TRUE(StagingBytes({{ViewOf("w", Shape(16, 1))}}).ok());
  BoxView rounded = ViewOf("w", {4, 6});
  rounded.stored.stored_as = DType::kBF16;
  EXPECT_TRUE(StagingBytes({{rounded}}).ok());
}

TEST(SaveTasksTest, RoomIsOfWholeCacheLines) {
  const auto room = [](int64_t bytes) {
    return *StagingBytes({{ViewOf("w", {bytes}, DType::kU8)}});
  };
  EXPECT_EQ(room(0), 0);
  EXPECT_EQ(room(1), 64);
  EXPECT_EQ(room(64), 64);
  EXPECT_EQ(room(65), 128);
  const std::vector<BoxView> two = {ViewOf("a", {65}, DType::kU8), ViewOf("b", {1}, DType::kU8)};
  EXPECT_EQ(*StagingBytes(two), 192);
}

TEST(SaveTasksTest, EachChunkIsATaskOfItsBox) {
  WriterOptions options;
  options.name = "w/0";
  options.chunk_bytes = 64;
  const std::vector<BoxView> boxes = {ViewOf("a", {32}), ViewOf("none", {0, 3}), ViewOf("b", {3})};
  Bytes staging(1024);
  const auto save = PrepareSave(options, {.step = 7, .generation = 3}, boxes, staging.data());
  ASSERT_TRUE(save.ok()) << save.status().ToString();
  EXPECT_EQ((*save)->file, "w%2F0.g3.h5");
  EXPECT_EQ((*save)->tasks(), 3);
  EXPECT_THAT((*save)->task_items, ElementsAre(0, 0, 1));
  EXPECT_EQ((*save)->raw_bytes, 32 * 4 + 3 * 4);
  EXPECT_EQ((*save)->staged_bytes, 128 + 64);
  EXPECT_TRUE((*save)->staged);
  EXPECT_FALSE((*save)->raw);
  ASSERT_EQ((*save)->empty.size(), 1U);
  EXPECT_EQ((*save)->empty[0].name, "none");
  ASSERT_EQ((*save)->items.size(), 2U);
  EXPECT_EQ((*save)->items[0].chunk, (Shape{16}));
  EXPECT_EQ((*save)->items[0].first_task, 0);
  EXPECT_EQ((*save)->items[1].first_task, 2);
  EXPECT_EQ((*save)->items[1].dataset, "/master/b");
  EXPECT_EQ((*save)->items[1].bytes, staging.data() + 128);
  ASSERT_EQ((*save)->copies.size(), 2U);
  EXPECT_EQ((*save)->copies[1].to, staging.data() + 128);
  EXPECT_EQ((*save)->copies[1].from.size(), 12U);
  const auto in_place = PrepareSave(options, {.step = 7, .generation = 3}, boxes, nullptr);
  ASSERT_TRUE(in_place.ok());
  EXPECT_FALSE((*in_place)->staged);
  EXPECT_EQ((*in_place)->staged_bytes, 0);
  EXPECT_TRUE((*in_place)->copies.empty());
  EXPECT_EQ((*in_place)->items[1].bytes, Memory().data());
}

TEST(SaveTasksTest, ABoxTwiceIsRefused) {
  WriterOptions options;
  options.name = "w0";
  const std::vector<BoxView> twice = {ViewOf("a", {4, 2}), ViewOf("a", {4, 2})};
  const Status status = PrepareSave(options, {.step = 1, .generation = 1}, twice, nullptr).status();
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(status.message(), "tensor 'a' (master): box [0:4, 0:2] is given twice");
}

}  // namespace
}  // namespace heddle::checkpoint
