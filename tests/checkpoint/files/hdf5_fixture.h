/// \file
/// HDF5 files that Heddle writes in a temporary folder, and the library itself opens.
#pragma once

#include <memory>
#include <string>
#include <utility>

#include <gtest/gtest.h>
#include <hdf5.h>

#include "base/system/file.h"
#include "checkpoint/files/hdf5_file.h"
#include "tests/checkpoint/support.h"

namespace heddle::checkpoint {

class Hdf5Fixture : public ::testing::Test {
 protected:
  std::unique_ptr<Hdf5File> Create(const std::string& name) {
    auto file = Hdf5File::Create(folder_.path() + "/" + name, 4, 4);
    EXPECT_TRUE(file.ok()) << file.status().ToString();
    return *std::move(file);
  }
  hid_t Open(const std::string& name) const {
    const hid_t file = H5Fopen((folder_.path() + "/" + name).c_str(), H5F_ACC_RDONLY, H5P_DEFAULT);
    EXPECT_GE(file, 0);
    return file;
  }
  static StoredBox Stored(const std::string& name, DType dtype, Shape whole, Box box) {
    return {.name = name,
            .role = "master",
            .dtype = dtype,
            .global_shape = std::move(whole),
            .box = std::move(box)};
  }

  const TemporaryFolder folder_;
};

}  // namespace heddle::checkpoint
