/// \file
/// What `heddle checkpoint inspect` prints of a model's file, letter by letter.
#include "checkpoint/formats/describe.h"

#include <gtest/gtest.h>

#include "tests/checkpoint/convert/memory_model.h"

namespace heddle::checkpoint {
namespace {

MemoryModel Model() {
  MemoryModel model("");
  model.Add("a.long.name", {2, 3}, 0);
  model.Add("b", {}, 0);
  model.last().dtype.reset();
  model.last().type = "F8_E4M3";
  model.last().bytes = 1;
  model.last().stored_bytes = 2;
  return model;
}

TEST(DescribeTest, TheTextHasALineATensor) {
  EXPECT_EQ(DescribeText(Model()),
            "memory: 2 tensors, 25 bytes\n"
            "  a.long.name  fp32      [2, 3]\n"
            "  b            F8_E4M3   []\n");
}

TEST(DescribeTest, TheJsonHasAllOfIt) {
  EXPECT_EQ(DescribeJson(Model()),
            R"({"format":"memory","step":17,"bytes":25,"tensors":[)"
            R"({"name":"a.long.name","dtype":"fp32","shape":[2,3],"bytes":24,"stored_bytes":24},)"
            R"({"name":"b","dtype":"F8_E4M3","shape":[],"bytes":1,"stored_bytes":2}]})");
}

TEST(DescribeTest, OneLongNameDoesNotPadTheOthers) {
  MemoryModel model = Model();
  model.Add(std::string(3000, 'x'), {1}, 0);
  EXPECT_LT(DescribeText(model).size(), 3500U);
}

}  // namespace
}  // namespace heddle::checkpoint
