/// \file
/// Elements that the library does not find are NaN, for every type that has it.
#include <cmath>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "tests/checkpoint/files/hdf5_fixture.h"

namespace heddle::checkpoint {
namespace {

using Hdf5FillTest = Hdf5Fixture;

TEST_F(Hdf5FillTest, ElementsThatAreNotThereAreNoNumbers) {
  struct Case {
    DType dtype;
    bool has_nan;
  };
  const std::vector<Case> cases = {{DType::kF32, true}, {DType::kF64, true},  {DType::kBF16, true},
                                   {DType::kF16, true}, {DType::kI32, false}, {DType::kI64, false},
                                   {DType::kU8, false}};
  auto file = Create("absent.h5");
  for (const Case& one : cases) {
    const std::string name(DTypeName(one.dtype));
    const StoredBox stored = Stored(name, one.dtype, {3}, {{0}, {3}});
    ASSERT_TRUE(file->BeginDataset("/chunked/" + name, stored, {2}).ok());
    ASSERT_TRUE(file->EndDataset().ok());
    const std::vector<VirtualSource> sources = {
        {.box = {{0}, {3}}, .file = "gone.h5", .dataset = "/master/" + name}};
    ASSERT_TRUE(
        file->WriteVirtualDataset("/virtual/" + name, {name, "master", one.dtype, {3}}, sources)
            .ok());
  }
  ASSERT_TRUE(file->Close().ok());
  const hid_t opened = Open("absent.h5");
  for (const Case& one : cases) {
    for (const char* const group : {"chunked", "virtual"}) {
      const std::string name = fmt::format("/{}/{}", group, DTypeName(one.dtype));
      SCOPED_TRACE(name);
      const hid_t dataset = H5Dopen2(opened, name.c_str(), H5P_DEFAULT);
      std::vector<double> read(3, 7.0);
      ASSERT_GE(H5Dread(dataset, H5T_NATIVE_DOUBLE, H5S_ALL, H5S_ALL, H5P_DEFAULT, read.data()), 0);
      for (const double value : read) {
        EXPECT_TRUE(one.has_nan ? std::isnan(value) : value == 0) << value;
      }
      H5Dclose(dataset);
    }
  }
  H5Fclose(opened);
}

}  // namespace
}  // namespace heddle::checkpoint
