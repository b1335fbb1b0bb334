/// \file
/// The table of formats, what stands in the place of a model, and the bounds of a sink's request.
#include "checkpoint/formats/format.h"

#include <cstring>
#include <filesystem>

#include <gmock/gmock.h>

#include "base/system/file.h"
#include "checkpoint/formats/safetensors_header.h"
#include "checkpoint/storage/manifest_file.h"
#include "tests/checkpoint/support.h"

namespace heddle::checkpoint {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

Format Named(const std::string& name, int rank) {
  return {.name = name,
          .rank = rank,
          .recognise = [](const std::string&) { return false; },
          .open = {},
          .create = {}};
}

TEST(FormatTest, FormatsStandByRankWhateverTheOrderTheyCameIn) {
  const FormatRegistration last(Named("last", 90));
  const FormatRegistration first(Named("first", -90));
  const FormatRegistration middle(Named("middle", 89));
  std::vector<std::string> names;
  for (const Format& format : Formats()) {
    names.push_back(format.name);
  }
  EXPECT_THAT(names, ElementsAre("first", "native", "safetensors", "pytorch", "middle", "last"));
  EXPECT_EQ((*FindFormat("middle"))->rank, 89);
  EXPECT_EQ(FindFormat("gguf").status().message(),
            "format 'gguf' is not known; there are: first, native, safetensors, pytorch, middle, "
            "last");
}

class ModelFileTest : public ::testing::Test {
 protected:
  std::string Write(const std::string& name, const std::string& content) const {
    const std::string path = folder_.path() + "/" + name;
    EXPECT_TRUE(WriteFileAtomically(path, content).ok());
    return path;
  }
  /// The message for a folder whose one file has this content.
  std::string InFolder(const std::string& content) const {
    const std::string folder = folder_.path() + "/model";
    std::filesystem::create_directories(folder);
    Write("model/model.safetensors", content);
    return std::string(OpenModel(folder).status().message());
  }

  const TemporaryFolder folder_;
};

TEST_F(ModelFileTest, WhatStandsInTheModelsPlaceIsNamed) {
  const auto message = [&](const std::string& content) {
    return std::string(OpenModel(Write("m", content)).status().message());
  };
  const std::string path = folder_.path() + "/m";
  EXPECT_EQ(message(""), path + ": the file is empty");
  EXPECT_EQ(message("version https://git-lfs.github.com/spec/v1\n"),
            path + ": a pointer of Git LFS, not the model: fetch the file itself (git lfs pull)");
  for (const char* const page : {"<!DOCTYPE html>", "<!doctype html>", "<html>"}) {
    EXPECT_EQ(message(page), path + ": a web page, not a model: the download failed");
  }
  EXPECT_THAT(message("something else"), HasSubstr(path + ": no model of a known format ("));
  EXPECT_THAT(OpenModel(folder_.path() + "/none").status().message(),
              HasSubstr("open " + folder_.path() + "/none"));
  EXPECT_EQ(OpenModel(folder_.path() + "/none").status().code(), StatusCode::kNotFound);
  EXPECT_THAT(OpenModel(folder_.path()).status().message(),
              HasSubstr("no model of a known format"));
}

std::string WithLength(uint64_t length, const std::string& rest) {
  std::string file(sizeof(length), '\0');
  std::memcpy(file.data(), &length, sizeof(length));
  return file + rest;
}

TEST_F(ModelFileTest, TheLengthOfASafetensorsHeaderIsBounded) {
  const std::string path = folder_.path() + "/model/model.safetensors";
  EXPECT_EQ(InFolder("1234567"), path + ": 7 bytes are no safetensors file");
  EXPECT_EQ(InFolder(WithLength(0, "")), path + ": the header does not begin with '{'");
  EXPECT_EQ(InFolder(WithLength(2, "{}")), "");
  EXPECT_EQ(InFolder(WithLength(3, "{}")),
            path + ": a header of 3 bytes in a file of 10: it is cut short");
  // Only a file that could be one is taken for one by its content alone.
  EXPECT_EQ(OpenModel(Write("m", WithLength(2, "{}"))).status().message(), "");
  EXPECT_THAT(OpenModel(Write("m", WithLength((uint64_t{1} << 40) - 1, "{}"))).status().message(),
              HasSubstr("a header of 1099511627775 bytes in a file of 10: it is cut short"));
  EXPECT_THAT(OpenModel(Write("m", WithLength(uint64_t{1} << 40, "{}"))).status().message(),
              HasSubstr("no model of a known format"));
  const auto most = static_cast<uint64_t>(kSafetensorsHeaderLimit);
  for (const bool beyond : {false, true}) {
    InFolder(WithLength(most + (beyond ? 1 : 0), ""));
    std::filesystem::resize_file(path, 8 + most + 1);
    EXPECT_EQ(OpenModel(folder_.path() + "/model").status().message(),
              path + (beyond ? ": a header of 33554433 bytes, more than 33554432"
                             : ": the header does not begin with '{'"));
  }
}

TEST_F(ModelFileTest, ABoxAndItsMemoryMustFit) {
  const std::string header = R"({"w":{"dtype":"F32","shape":[2,2],"data_offsets":[0,16]}})";
  const auto source =
      OpenModel(Write("m", WithLength(header.size(), header + std::string(16, '\1'))));
  ASSERT_TRUE(source.ok()) << source.status().ToString();
  Bytes out(9);
  EXPECT_EQ((*source)->Read(0, {{0, 0}, {1, 2}}, out).message(),
            folder_.path() + "/m: tensor 'w': 9 bytes of memory for box [0:1, 0:2]");
  EXPECT_TRUE((*source)->Read(0, {{0, 0}, {0, 2}}, {}).ok());
  out.resize(8);
  EXPECT_TRUE((*source)->Read(0, {{0, 1}, {2, 1}}, out).ok());
}

TEST_F(ModelFileTest, ASinkTakesJustTheElementsOfItsTensors) {
  for (const char* const name : {"safetensors", "pytorch", "native"}) {
    SCOPED_TRACE(name);
    const auto create = [&] {
      auto sink = (*FindFormat(name))
                      ->create({.path = folder_.path() + "/" + name,
                                .tensors = {{.name = "none", .role = "master", .shape = {0}},
                                            {.name = "w", .role = "master", .shape = {2}},
                                            {.name = "v", .role = "master", .shape = {1}}},
                                .config = {},
                                .threads = 0});
      EXPECT_TRUE(sink.ok()) << sink.status().ToString();
      return *std::move(sink);
    };
    const Bytes one(4, std::byte{1});
    auto sink = create();
    ASSERT_TRUE(sink->Append(one).ok());
    EXPECT_EQ(sink->Finish().code(), StatusCode::kFailedPrecondition);
    EXPECT_THAT(sink->Finish().message(), HasSubstr("'w'"));
    sink.reset();
    EXPECT_TRUE(std::filesystem::is_empty(folder_.path()));
    sink = create();
    for (int i = 0; i < 3; ++i) {
      ASSERT_TRUE(sink->Append(one).ok());
    }
    const Status more = sink->Append(one);
    EXPECT_EQ(more.code(), StatusCode::kFailedPrecondition);
    EXPECT_THAT(more.message(), HasSubstr("more elements than"));
    sink.reset();
    sink = create();
    for (int i = 0; i < 3; ++i) {
      ASSERT_TRUE(sink->Append(one).ok());
    }
    ASSERT_TRUE(sink->Finish().ok());
    EXPECT_TRUE(OpenModel(folder_.path() + "/" + name).ok());
    if (std::string(name) == "native") {
      const auto manifest = LoadManifest(folder_.path() + "/" + name);
      ASSERT_TRUE(manifest.ok()) << manifest.status().ToString();
      EXPECT_EQ(manifest->Find({"w", "master"})->boxes[0].dataset, "/master/w");
    }
    std::filesystem::remove_all(folder_.path() + "/" + name);
  }
}

}  // namespace
}  // namespace heddle::checkpoint
