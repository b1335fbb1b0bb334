/// \file
/// Goal: what the library itself reads in our files is what the format's page says: types, shapes,
/// attributes, filters, places of chunks, and which boxes of which files make a whole tensor.
#include "checkpoint/files/hdf5_file.h"

#include <algorithm>
#include <map>

#include <gmock/gmock.h>
#include <hdf5.h>

#include "checkpoint/codec/codec.h"
#include "checkpoint/files/tensor_index.h"
#include "tests/checkpoint/files/hdf5_fixture.h"

namespace heddle::checkpoint {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::string TextOf(hid_t object, const char* name) {
  const hid_t attribute = H5Aopen(object, name, H5P_DEFAULT);
  const hid_t type = H5Aget_type(attribute);
  EXPECT_EQ(H5Tget_class(type), H5T_STRING) << name;
  EXPECT_EQ(H5Tget_cset(type), H5T_CSET_UTF8) << name;
  EXPECT_EQ(H5Tget_strpad(type), H5T_STR_NULLPAD) << name;
  std::string text(H5Tget_size(type), '\0');
  EXPECT_GE(H5Aread(attribute, type, text.data()), 0) << name;
  H5Tclose(type);
  H5Aclose(attribute);
  return text;
}

/// A list of numbers; -1 alone when the attribute holds nothing at all.
std::vector<int64_t> NumbersOf(hid_t object, const char* name) {
  const hid_t attribute = H5Aopen(object, name, H5P_DEFAULT);
  EXPECT_GE(attribute, 0) << name;
  const hid_t space = H5Aget_space(attribute);
  const hid_t type = H5Aget_type(attribute);
  EXPECT_GT(H5Tequal(type, H5T_STD_I64LE), 0) << name;
  std::vector<int64_t> numbers = {-1};
  if (H5Sget_simple_extent_type(space) != H5S_NULL) {
    EXPECT_EQ(H5Sget_simple_extent_ndims(space), 1) << name;
    numbers.resize(static_cast<size_t>(H5Sget_simple_extent_npoints(space)));
    EXPECT_GE(H5Aread(attribute, H5T_NATIVE_INT64, numbers.data()), 0) << name;
  }
  H5Tclose(type);
  H5Sclose(space);
  H5Aclose(attribute);
  return numbers;
}

std::vector<hsize_t> ExtentOf(hid_t dataset) {
  const hid_t space = H5Dget_space(dataset);
  std::vector<hsize_t> extent(static_cast<size_t>(H5Sget_simple_extent_ndims(space)));
  H5Sget_simple_extent_dims(space, extent.data(), nullptr);
  H5Sclose(space);
  return extent;
}

using Hdf5FileTest = Hdf5Fixture;

TEST_F(Hdf5FileTest, ADatasetSaysWhatItHolds) {
  auto file = Create("a.h5");
  const std::string name = "caf\xC3\xA9/w";
  ASSERT_TRUE(file->BeginDataset("/master/w@2,0",
                                 Stored(name, DType::kF32, {9, 6}, {{2, 0}, {5, 6}}), {2, 4})
                  .ok());
  const Bytes first(11, std::byte{1});
  const Bytes second(7, std::byte{2});
  const auto a = file->WriteChunk({0, 0}, first);
  const auto b = file->WriteChunk({4, 4}, second);
  ASSERT_TRUE(a.ok() && b.ok()) << a.status().ToString() << b.status().ToString();
  ASSERT_TRUE(file->EndDataset().ok());
  const auto record = file->Close();
  ASSERT_TRUE(record.ok()) << record.status().ToString();
  ASSERT_TRUE(file->Sync().ok());
  EXPECT_EQ(*record, *DescribeFile(folder_.path(), "a.h5"));

  const hid_t opened = Open("a.h5");
  const hid_t dataset = H5Dopen2(opened, "/master/w@2,0", H5P_DEFAULT);
  ASSERT_GE(dataset, 0);
  EXPECT_THAT(ExtentOf(dataset), ElementsAre(5, 6));
  EXPECT_THAT(NumbersOf(dataset, "box_offset"), ElementsAre(2, 0));
  EXPECT_THAT(NumbersOf(dataset, "global_shape"), ElementsAre(9, 6));
  EXPECT_EQ(TextOf(dataset, "logical_dtype"), "fp32");
  EXPECT_EQ(TextOf(dataset, "name"), name);
  H5L_info_t link;
  ASSERT_GE(H5Lget_info(opened, "/master/w@2,0", &link, H5P_DEFAULT), 0);
  EXPECT_EQ(link.cset, H5T_CSET_UTF8);

  const hid_t made = H5Dget_create_plist(dataset);
  std::vector<hsize_t> chunk(2);
  EXPECT_EQ(H5Pget_chunk(made, 2, chunk.data()), 2);
  EXPECT_THAT(chunk, ElementsAre(2, 4));
  H5D_alloc_time_t allocated{};
  H5D_fill_time_t filled{};
  H5Pget_alloc_time(made, &allocated);
  H5Pget_fill_time(made, &filled);
  EXPECT_EQ(allocated, H5D_ALLOC_TIME_INCR);
  EXPECT_EQ(filled, H5D_FILL_TIME_IFSET);
  ASSERT_EQ(H5Pget_nfilters(made), 2);
  unsigned flags = 0;
  size_t count = 4;
  unsigned values[4] = {};
  EXPECT_EQ(H5Pget_filter2(made, 0, &flags, &count, values, 0, nullptr, nullptr),
            H5Z_FILTER_SHUFFLE);
  count = 4;
  EXPECT_EQ(H5Pget_filter2(made, 1, &flags, &count, values, 0, nullptr, nullptr), kZstdFilter);
  EXPECT_EQ(flags, static_cast<unsigned>(H5Z_FLAG_OPTIONAL));
  EXPECT_EQ(count, 1U);
  EXPECT_EQ(values[0], 1U);
  H5Pclose(made);

  // The library itself finds the chunks where they were said to be, unfiltered by none.
  std::map<std::vector<hsize_t>, std::pair<haddr_t, hsize_t>> chunks;
  const hid_t all = H5Dget_space(dataset);
  for (hsize_t i = 0; i < 2; ++i) {
    std::vector<hsize_t> offset(2);
    unsigned mask = 1;
    haddr_t address = 0;
    hsize_t size = 0;
    ASSERT_GE(H5Dget_chunk_info(dataset, all, i, offset.data(), &mask, &address, &size), 0);
    EXPECT_EQ(mask, 0U);
    chunks[offset] = {address, size};
  }
  H5Sclose(all);
  EXPECT_EQ((chunks[{0, 0}]), (std::pair<haddr_t, hsize_t>(static_cast<haddr_t>(*a), 11)));
  EXPECT_EQ((chunks[{4, 4}]), (std::pair<haddr_t, hsize_t>(static_cast<haddr_t>(*b), 7)));
  H5Dclose(dataset);
  H5Fclose(opened);
}

TEST_F(Hdf5FileTest, ElementsHaveTheTypeOfTheirBits) {
  struct Case {
    DType dtype;
    hid_t library;  ///< -1: a float of 16 bits with such a field for the exponent.
    size_t exponent_bits = 0;
    size_t bias = 0;
  };
  const std::vector<Case> cases = {{DType::kF32, H5T_IEEE_F32LE}, {DType::kF64, H5T_IEEE_F64LE},
                                   {DType::kI32, H5T_STD_I32LE},  {DType::kI64, H5T_STD_I64LE},
                                   {DType::kU8, H5T_STD_U8LE},    {DType::kBF16, -1, 8, 127},
                                   {DType::kF16, -1, 5, 15}};
  auto file = Create("types.h5");
  for (const Case& one : cases) {
    const std::string name(DTypeName(one.dtype));
    ASSERT_TRUE(
        file->BeginDataset("/master/" + name, Stored(name, one.dtype, {2}, {{0}, {2}}), {2}).ok());
    ASSERT_TRUE(file->EndDataset().ok());
  }
  StoredBox rounded = Stored("rounded", DType::kF32, {2}, {{0}, {2}});
  rounded.stored_as = DType::kBF16;
  ASSERT_TRUE(file->BeginDataset("/master/rounded", rounded, {2}).ok());
  ASSERT_TRUE(file->EndDataset().ok());
  ASSERT_TRUE(file->Close().ok());
  const hid_t opened = Open("types.h5");
  const auto expect_narrow = [](hid_t type, size_t exponent_bits, size_t bias) {
    EXPECT_EQ(H5Tget_class(type), H5T_FLOAT);
    EXPECT_EQ(H5Tget_order(type), H5T_ORDER_LE);
    EXPECT_EQ(H5Tget_size(type), 2U);
    EXPECT_EQ(H5Tget_precision(type), 16U);
    EXPECT_EQ(H5Tget_ebias(type), bias);
    size_t sign = 0;
    size_t exponent = 0;
    size_t exponent_size = 0;
    size_t mantissa = 1;
    size_t mantissa_size = 0;
    H5Tget_fields(type, &sign, &exponent, &exponent_size, &mantissa, &mantissa_size);
    EXPECT_EQ(sign, 15U);
    EXPECT_EQ(exponent_size, exponent_bits);
    EXPECT_EQ(exponent, 15 - exponent_bits);
    EXPECT_EQ(mantissa, 0U);
    EXPECT_EQ(mantissa_size, 15 - exponent_bits);
  };
  for (const Case& one : cases) {
    SCOPED_TRACE(DTypeName(one.dtype));
    const hid_t dataset =
        H5Dopen2(opened, fmt::format("/master/{}", DTypeName(one.dtype)).c_str(), H5P_DEFAULT);
    const hid_t type = H5Dget_type(dataset);
    if (one.library >= 0) {
      EXPECT_GT(H5Tequal(type, one.library), 0);
    } else {
      expect_narrow(type, one.exponent_bits, one.bias);
    }
    H5Tclose(type);
    H5Dclose(dataset);
  }
  const hid_t dataset = H5Dopen2(opened, "/master/rounded", H5P_DEFAULT);
  const hid_t type = H5Dget_type(dataset);
  expect_narrow(type, 8, 127);
  EXPECT_EQ(TextOf(dataset, "logical_dtype"), "fp32");
  H5Tclose(type);
  H5Dclose(dataset);
  H5Fclose(opened);
}

TEST_F(Hdf5FileTest, AScalarIsOneElementWithoutDimensions) {
  auto file = Create("scalar.h5");
  ASSERT_TRUE(file->BeginDataset("/master/s", Stored("s", DType::kF32, {}, {{}, {}}), {}).ok());
  ASSERT_TRUE(file->WriteChunk({}, Bytes(4)).ok());
  ASSERT_TRUE(file->EndDataset().ok());
  const std::vector<VirtualSource> sources = {
      {.box = {{}, {}}, .file = "other.h5", .dataset = "/master/s"}};
  ASSERT_TRUE(
      file->WriteVirtualDataset("/whole/s", {"s", "master", DType::kF32, {}}, sources).ok());
  ASSERT_TRUE(file->Close().ok());
  const hid_t opened = Open("scalar.h5");
  for (const char* const name : {"/master/s", "/whole/s"}) {
    const hid_t dataset = H5Dopen2(opened, name, H5P_DEFAULT);
    ASSERT_GE(dataset, 0) << name;
    EXPECT_THAT(ExtentOf(dataset), ElementsAre(1)) << name;
    EXPECT_THAT(NumbersOf(dataset, "box_offset"), ElementsAre(-1)) << name;
    EXPECT_THAT(NumbersOf(dataset, "global_shape"), ElementsAre(-1)) << name;
    H5Dclose(dataset);
  }
  H5Fclose(opened);
}

TEST_F(Hdf5FileTest, AWholeTensorIsMadeOfItsBoxes) {
  auto file = Create("whole.h5");
  const TensorInfo tensor{"50%", "master", DType::kBF16, {4, 6}};
  const std::vector<VirtualSource> sources = {
      {.box = {{0, 0}, {4, 2}}, .file = "w0.h5", .dataset = "/master/50%25@0,0"},
      {.box = {{0, 2}, {3, 4}}, .file = "w%1.h5", .dataset = "/master/50%25@0,2"}};
  ASSERT_TRUE(file->WriteVirtualDataset("/master/50%25", tensor, sources).ok());
  ASSERT_TRUE(file->Close().ok());
  const hid_t opened = Open("whole.h5");
  const hid_t dataset = H5Dopen2(opened, "/master/50%25", H5P_DEFAULT);
  ASSERT_GE(dataset, 0);
  EXPECT_THAT(ExtentOf(dataset), ElementsAre(4, 6));
  EXPECT_THAT(NumbersOf(dataset, "box_offset"), ElementsAre(0, 0));
  EXPECT_THAT(NumbersOf(dataset, "global_shape"), ElementsAre(4, 6));
  EXPECT_EQ(TextOf(dataset, "logical_dtype"), "bf16");
  EXPECT_EQ(TextOf(dataset, "name"), "50%");
  const hid_t made = H5Dget_create_plist(dataset);
  size_t count = 0;
  ASSERT_GE(H5Pget_virtual_count(made, &count), 0);
  ASSERT_EQ(count, sources.size());
  // '%' twice is one of them to the library.
  const std::vector<std::string> files = {"w0.h5", "w%%1.h5"};
  for (size_t i = 0; i < count; ++i) {
    char text[64] = {};
    H5Pget_virtual_filename(made, i, text, sizeof(text));
    EXPECT_EQ(text, files[i]);
    H5Pget_virtual_dsetname(made, i, text, sizeof(text));
    EXPECT_EQ(text, i == 0 ? std::string("/master/50%%25@0,0") : "/master/50%%25@0,2");
    const hid_t space = H5Pget_virtual_vspace(made, i);
    hsize_t first[2] = {};
    hsize_t last[2] = {};
    ASSERT_GE(H5Sget_select_bounds(space, first, last), 0);
    const Box& box = sources[i].box;
    for (size_t d = 0; d < 2; ++d) {
      EXPECT_EQ(first[d], static_cast<hsize_t>(box.offset[d]));
      EXPECT_EQ(last[d], static_cast<hsize_t>(box.offset[d] + box.extent[d] - 1));
    }
    H5Sclose(space);
    const hid_t held = H5Pget_virtual_srcspace(made, i);
    EXPECT_EQ(H5Sget_select_type(held), H5S_SEL_ALL) << "the box is all of its dataset";
    H5Sclose(held);
  }
  H5Pclose(made);
  H5Dclose(dataset);
  H5Fclose(opened);
}

TEST_F(Hdf5FileTest, AnIndexShowsTheTensorsWhoseElementsAreStored) {
  Manifest manifest;
  manifest.files = {{"w0.h5", 10, ""}, {"w1.h5", 10, ""}};
  const auto add = [&](const TensorInfo& info, std::vector<BoxRecord> boxes) {
    manifest.tensors.push_back({.info = info, .digest = {}, .boxes = std::move(boxes)});
  };
  const std::vector<ChunkRecord> chunks(1);
  add({"w", "master", DType::kF32, {4}},
      {{.box = {{0}, {2}},
        .chunk = {2},
        .file = 1,
        .dataset = "/master/w@0",
        .digest = {},
        .chunks = chunks},
       {.box = {{2}, {0}}, .chunk = {}, .file = 0, .dataset = "", .digest = {}, .chunks = {}},
       {.box = {{2}, {2}},
        .chunk = {2},
        .file = 0,
        .dataset = "/master/w@2",
        .digest = {},
        .chunks = chunks}});
  add({"none", "master", DType::kF32, {0}}, {});
  add({"w", "weight", DType::kBF16, {4}}, {{.box = {{0}, {4}},
                                            .chunk = {},
                                            .file = 0,
                                            .dataset = "",
                                            .digest = {},
                                            .chunks = {},
                                            .derived_from = "master"}});
  const auto record = WriteTensorIndex(folder_.path(), manifest);
  ASSERT_TRUE(record.ok()) << record.status().ToString();
  EXPECT_EQ(*record, *DescribeFile(folder_.path(), "tensors.h5"));
  const hid_t opened = Open("tensors.h5");
  const hid_t dataset = H5Dopen2(opened, "/master/w", H5P_DEFAULT);
  ASSERT_GE(dataset, 0);
  const hid_t made = H5Dget_create_plist(dataset);
  size_t count = 0;
  H5Pget_virtual_count(made, &count);
  EXPECT_EQ(count, 2U) << "the empty box is none";
  char text[64] = {};
  H5Pget_virtual_filename(made, 0, text, sizeof(text));
  EXPECT_EQ(std::string(text), "w1.h5");
  H5Pget_virtual_dsetname(made, 1, text, sizeof(text));
  EXPECT_EQ(std::string(text), "/master/w@2");
  H5Pclose(made);
  H5Dclose(dataset);
  EXPECT_EQ(H5Lexists(opened, "/weight", H5P_DEFAULT), 0) << "its elements follow from others";
  EXPECT_EQ(H5Lexists(opened, "/master/none", H5P_DEFAULT), 0);
  H5Fclose(opened);
}

TEST_F(Hdf5FileTest, RoomForTheLibrarysOwnPartIsMadeByWhatIsToCome) {
  const auto first_chunk = [&](int64_t datasets, int64_t chunks) {
    auto file = Hdf5File::Create(folder_.path() + "/room.h5", datasets, chunks);
    EXPECT_TRUE(file.ok()) << file.status().ToString();
    EXPECT_TRUE((*file)->BeginDataset("/w", Stored("w", DType::kF32, {4}, {{0}, {4}}), {4}).ok());
    const auto address = (*file)->WriteChunk({0}, Bytes(7));
    EXPECT_TRUE(address.ok()) << address.status().ToString();
    return *address;
  };
  const int64_t least = first_chunk(0, 0);
  EXPECT_EQ(first_chunk(3, 0), least) << "2 KiB at least";
  EXPECT_EQ(first_chunk(100, 0) - least, 100 * 640 - 2048);
  EXPECT_EQ(first_chunk(0, 1000) - least, 1000 * 24 - 2048);
  EXPECT_EQ(first_chunk(10, 500) - least, 10 * 640 + 500 * 24 - 2048);
  EXPECT_EQ(first_chunk(1 << 20, 0) - least, (64 << 20) - 2048) << "64 MiB at most";
}

TEST_F(Hdf5FileTest, ARefusalOfTheLibraryIsHandedOn) {
  EXPECT_THAT(Hdf5File::Create(folder_.path() + "/none/a.h5", 1, 1).status().message(),
              HasSubstr("create " + folder_.path() + "/none/a.h5"));
  auto file = Create("b.h5");
  const StoredBox stored = Stored("w", DType::kF32, {4}, {{0}, {4}});
  const std::string in = " in " + folder_.path() + "/b.h5: ";
  // A chunk of rank 2 for a box of rank 1.
  const Status shape = file->BeginDataset("/master/w", stored, {2, 2});
  EXPECT_EQ(shape.code(), StatusCode::kInternal);
  EXPECT_THAT(shape.message(), HasSubstr("create a dataset" + in));
  ASSERT_TRUE(file->BeginDataset("/master/w", stored, {2}).ok());
  const auto behind = file->WriteChunk({1}, Bytes(3));
  EXPECT_EQ(behind.status().code(), StatusCode::kInternal);
  EXPECT_THAT(behind.status().message(), HasSubstr("write a chunk" + in))
      << "no chunk begins there";
  EXPECT_TRUE(file->WriteChunk({2}, Bytes(3)).ok());
  ASSERT_TRUE(file->EndDataset().ok());
  const Status twice = file->BeginDataset("/master/w", stored, {2});
  EXPECT_THAT(twice.message(), HasSubstr("create a dataset" + in));
  EXPECT_THAT(twice.message(), ::testing::Not(HasSubstr("no reason given")));
  const Status chunk = file->BeginDataset("/master/v", stored, {0});
  EXPECT_THAT(chunk.message(), HasSubstr("dataset properties" + in));
  EXPECT_THAT(file->WriteChunk({0}, Bytes(3)).status().message(), HasSubstr("write a chunk" + in));
  EXPECT_TRUE(file->Close().ok()) << "what was refused is not in it";
}

}  // namespace
}  // namespace heddle::checkpoint
