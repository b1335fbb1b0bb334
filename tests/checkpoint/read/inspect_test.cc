/// \file
/// What `heddle checkpoint inspect` prints, letter by letter, of a manifest made by hand.
#include "checkpoint/read/inspect.h"

#include <gmock/gmock.h>

#include "checkpoint/format/extra.h"
#include "checkpoint/format/types.h"

namespace heddle::checkpoint {
namespace {

using ::testing::HasSubstr;

BoxRecord BoxOf(int64_t bytes) {
  BoxRecord box;
  box.box = {{0}, {4}};
  box.chunks = {{.address = 0, .bytes = bytes - 1, .hash = 0},
                {.address = 1, .bytes = 1, .hash = 0}};
  return box;
}

/// A tensor of every kind: stored, rounded, derived in part and whole, empty.
Manifest EveryKind() {
  Manifest manifest;
  manifest.step = 40;
  manifest.generation = 3;
  manifest.created = 1.5;
  manifest.job = {.job_hash = "0123abcd",
                  .job_yaml = {},
                  .model = {},
                  .plan = R"({"pipelines": []})",
                  .extra = {},
                  .samples_consumed = 640};
  manifest.files = {{"w0.g3.h5", 1023, ""}, {"w1.g3.h5", 1024, ""}, {"w2.g3.h5", 3 << 20, ""}};
  BoxRecord derived;
  derived.box = {{0}, {4}};
  derived.derived_from = "master";
  BoxRecord rounded = BoxOf(8);
  rounded.stored_as = DType::kBF16;
  manifest.tensors = {
      {.info = {"w", "exp_avg", DType::kF32, {4}}, .digest = {}, .boxes = {rounded}},
      {.info = {"longer.name", "master", DType::kF32, {4, 256}},
       .digest = {0x1, 0xab},
       .boxes = {BoxOf(2000), BoxOf(48)}},
      {.info = {"none", "master", DType::kF32, {0}}, .digest = {}, .boxes = {}},
      {.info = {"w", "weight", DType::kBF16, {8}}, .digest = {}, .boxes = {BoxOf(4), derived}},
      {.info = {"x", "weight", DType::kBF16, {4}}, .digest = {}, .boxes = {derived}},
  };
  return manifest;
}

TEST(InspectTest, TheTextSaysAllOfIt) {
  EXPECT_EQ(
      InspectText(EveryKind()),
      "step              40\n"
      "generation        3\n"
      "samples consumed  640\n"
      "job               0123abcd\n"
      "guarantee         unknown\n"
      "size              3.0 MiB for 4.0 KiB of tensors (ratio 0.001)\n"
      "file              w0.g3.h5  1023 B\n"
      "file              w1.g3.h5  1.0 KiB\n"
      "file              w2.g3.h5  3.0 MiB\n"
      "lossy             rounded to bf16 when they were saved: exp_avg\n"
      "role        name         dtype        size   ratio  boxes  shape\n"
      "exp_avg     w            fp32         16 B   2.000      1  [4]  rounded to bf16\n"
      "master      longer.name  fp32      4.0 KiB   2.000      2  [4, 256]\n"
      "master      none         fp32          0 B   1.000      0  [0]\n"
      "weight      w            bf16         16 B   4.000      2  [8]  derived from master (1 of "
      "2 boxes)\n"
      "weight      x            bf16          8 B       -      1  [4]  derived from master\n");
}

TEST(InspectTest, TheTextSaysWhatIsPromisedOfItsBits) {
  Manifest manifest = EveryKind();
  ASSERT_TRUE(
      SetGuarantee(manifest.job, {.guarantee = "per-plan", .reason = "b is unlike a"}).ok());
  EXPECT_THAT(InspectText(manifest),
              HasSubstr("\nguarantee         per-plan: b is unlike a\nsize"));
  ASSERT_TRUE(SetGuarantee(manifest.job, {.guarantee = "plan-invariant",
                                          .arithmetic = {{"blas", "x 1"}, {"threads", "2"}}})
                  .ok());
  EXPECT_THAT(InspectText(manifest), HasSubstr("\nguarantee         plan-invariant\n"
                                               "computed on       blas x 1; threads 2\nsize"));
  EXPECT_THAT(InspectJson(manifest),
              HasSubstr(R"("guarantee":"plan-invariant","guarantee_reason":"",)"
                        R"("arithmetic":{"blas":"x 1","threads":"2"},"bytes":)"));
}

TEST(InspectTest, SizesHaveTheUnitThatFits) {
  const auto size_of = [](int64_t bytes) {
    Manifest manifest;
    manifest.files = {{"f", bytes, ""}};
    const std::string text = InspectText(manifest);
    const size_t begin =
        text.find("  f  ") == std::string::npos ? text.find("f  ") + 3 : text.find("  f  ") + 5;
    return text.substr(begin, text.find('\n', begin) - begin);
  };
  EXPECT_EQ(size_of((int64_t{1} << 30) - (1 << 20)), "1023.0 MiB");
  EXPECT_EQ(size_of(int64_t{1} << 30), "1.0 GiB");
  EXPECT_EQ(size_of(int64_t{3} << 40), "3.0 TiB");
  EXPECT_EQ(size_of(int64_t{2000} << 40), "2000.0 TiB");
}

TEST(InspectTest, AManifestOfExactElementsHasNoNote) {
  Manifest manifest = EveryKind();
  EXPECT_EQ(LossyNote(manifest), "rounded to bf16 when they were saved: exp_avg");
  manifest.tensors.erase(manifest.tensors.begin());
  EXPECT_EQ(LossyNote(manifest), "");
  EXPECT_EQ(InspectText(manifest).find("lossy"), std::string::npos);
}

TEST(InspectTest, TheJsonSaysAllOfIt) {
  Manifest manifest = EveryKind();
  manifest.tensors.erase(manifest.tensors.begin() + 2, manifest.tensors.end());
  manifest.files.resize(1);
  const std::string begin =
      R"({"format":"heddle-checkpoint","version":3,"step":40,"generation":3,"created":1.5,)"
      R"("samples_consumed":640,"job_hash":"0123abcd","guarantee":"unknown","guarantee_reason":"",)"
      R"("arithmetic":{},"bytes":4112,"stored_bytes":1023,"plan":)";
  const std::string end =
      R"(,"files":[{"name":"w0.g3.h5","bytes":1023}],"tensors":[)"
      R"({"name":"w","role":"exp_avg","dtype":"fp32","shape":[4],"bytes":16,"stored_bytes":8,)"
      R"("boxes":1,"digest":"00000000000000000000000000000000","lossy":true},)"
      R"({"name":"longer.name","role":"master","dtype":"fp32","shape":[4,256],"bytes":4096,)"
      R"("stored_bytes":2048,"boxes":2,"digest":"000000000000000100000000000000ab","lossy":false}]})";
  EXPECT_EQ(InspectJson(manifest), begin + R"({"pipelines":[]})" + end);
  manifest.job.plan = "not JSON";
  EXPECT_EQ(InspectJson(manifest), begin + R"("not JSON")" + end);
}

TEST(InspectTest, TheJsonNamesWhatATensorIsDerivedFrom) {
  Manifest manifest = EveryKind();
  manifest.tensors.erase(manifest.tensors.begin(), manifest.tensors.begin() + 4);
  EXPECT_THAT(InspectJson(manifest), HasSubstr(R"("lossy":false,"derived_from":"master"}])"));
}

}  // namespace
}  // namespace heddle::checkpoint
