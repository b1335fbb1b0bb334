/// \file
/// What a job file's author sees: every message in full, so that a change of wording or position is
/// a change of this file.
#include "base/yaml/yaml.h"

#include <filesystem>
#include <functional>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/system/file.h"
#include "tests/base/complaint.h"

namespace heddle {
namespace {

using std::chrono::seconds;
using testing::ElementsAre;
using testing::HasSubstr;

enum class Colour { kRed, kGreen };
const YamlChoices<Colour> kColours = {{"red", Colour::kRed}, {"green", Colour::kGreen}};

void ReadSteps(YamlReader& root) {
  root.Required<int64_t>("steps", {.least = 1, .most = 100});
}

TEST(YamlTest, ReadsEveryType) {
  Result<YamlDocument> document = YamlDocument::Parse(
      "steps: 20\nrate: 3e-4\ntie: true\nname: a b\nquoted: '5'\nmemory: 1GiB\nlink: 1Gbit\n"
      "lease: 2s\nseed: 18446744073709551615\ncolour: green\nlist: [1, 2]\nalone: 3\n"
      "inner: {deep: {x: -4}}\nworkers:\n  - name: w0\n  - name: w1\n",
      "job.yaml");
  ASSERT_TRUE(document.ok());
  YamlReader root = document->Root();
  EXPECT_EQ(root.Required<int64_t>("steps"), 20);
  EXPECT_EQ(root.Required<double>("rate"), 3e-4);
  EXPECT_EQ(root.Required<bool>("tie"), true);
  EXPECT_EQ(root.Required<std::string>("name"), "a b");
  EXPECT_EQ(root.Required<std::string>("quoted"), "5");
  EXPECT_EQ(root.Required<ByteSize>("memory").value, 1 << 30);
  EXPECT_EQ(root.Required<ByteRate>("link").value, 125e6);
  EXPECT_EQ(root.Required<Duration>("lease"), seconds(2));
  EXPECT_EQ(root.Required<uint64_t>("seed"), ~uint64_t{0});
  EXPECT_EQ(root.RequiredChoice("colour", kColours), Colour::kGreen);
  EXPECT_THAT(root.List<int64_t>("list"), ElementsAre(1, 2));
  EXPECT_THAT(root.List<int64_t>("alone"), ElementsAre(3));
  EXPECT_EQ(root.Child("inner").Child("deep").Required<int64_t>("x"), -4);
  std::vector<std::string> names;
  for (YamlReader& worker : root.Children("workers")) {
    names.push_back(worker.path() + "=" + worker.Required<std::string>("name"));
  }
  EXPECT_THAT(names, ElementsAre("workers.0=w0", "workers.1=w1"));
  EXPECT_EQ(root.Optional<int64_t>("absent", 9), 9);
  EXPECT_EQ(root.Maybe<int64_t>("absent"), std::nullopt);
  EXPECT_FALSE(root.OptionalChild("nothing").present());
  EXPECT_EQ(root.OptionalChild("nothing").Required<int64_t>("x"), 0);
  EXPECT_EQ(document->Finish().message(), "");
}

TEST(YamlTest, CollectsAllProblemsSortedByLine) {
  const std::string text =
      "train:\n"
      "  steps: 4\n"
      "  micro_bach: 2\n"
      "  steps: 5\n"
      "elastic:\n"
      "  lease: 500\n"
      "  nodes_min:\n"
      "  nodes_max: 0\n"
      "  colour: gren\n"
      "  verbose: yes\n"
      "  seed: 010\n"
      "  mask: 0x10\n"
      "  rate: .nan\n"
      "  memory: 1G\n"
      "  list: {a: 1}\n"
      "  quoted: '3'\n"
      "  text: ''\n";
  EXPECT_EQ(Complaint(text,
                      [](YamlReader& root) {
                        YamlReader train = root.Child("train");
                        train.Required<int64_t>("micro_batch");
                        train.Required<int64_t>("steps");
                        YamlReader elastic = root.Child("elastic");
                        elastic.Required<Duration>("lease");
                        elastic.Optional<int64_t>("nodes_min", 1);
                        elastic.Required<int64_t>("nodes_max", {.least = 1, .most = 100000});
                        elastic.RequiredChoice("colour", kColours);
                        elastic.Required<bool>("verbose");
                        elastic.Required<uint64_t>("seed");
                        elastic.Required<int32_t>("mask");
                        elastic.Required<double>("rate");
                        elastic.Required<ByteSize>("memory");
                        elastic.List<int64_t>("list");
                        elastic.Required<int64_t>("quoted");
                        elastic.Required<std::string>("text");
                        root.Required<std::string>("output");
                        root.Child("model");
                      }),
            "job.yaml:1:1: error: output: missing, expected a text\n"
            "job.yaml:1:1: error: model: missing, expected a mapping\n"
            "job.yaml:3:3: error: train.micro_bach: unknown key\n"
            "  hint: did you mean 'micro_batch'?\n"
            "job.yaml:4:3: error: train.steps: duplicate key\n"
            "  hint: first set at line 2\n"
            "job.yaml:6:10: error: elastic.lease: expected a duration, got '500'\n"
            "  hint: write a number and a unit: 500ms, 2s, 5m\n"
            "job.yaml:7:3: error: elastic.nodes_min: expected an integer, got nothing\n"
            "job.yaml:8:14: error: elastic.nodes_max: expected 1..100000, got '0'\n"
            "job.yaml:9:11: error: elastic.colour: expected one of red, green, got 'gren'\n"
            "  hint: did you mean 'green'?\n"
            "job.yaml:10:12: error: elastic.verbose: expected true or false, got 'yes'\n"
            "job.yaml:11:9: error: elastic.seed: expected an integer, got '010'\n"
            "  hint: integers are decimal, without leading zeros\n"
            "job.yaml:12:9: error: elastic.mask: expected an integer, got '0x10'\n"
            "  hint: integers are decimal, without leading zeros\n"
            "job.yaml:13:9: error: elastic.rate: expected a number, got '.nan'\n"
            "job.yaml:14:11: error: elastic.memory: expected a size, got '1G'\n"
            "  hint: write a number and a unit: 64MiB, 1GiB, 500MB\n"
            "job.yaml:15:9: error: elastic.list: expected an integer, got a mapping\n"
            "job.yaml:16:11: error: elastic.quoted: expected an integer, got '3'\n"
            "  hint: remove the quotes\n"
            "job.yaml:17:9: error: elastic.text: expected a text, got ''");
}

TEST(YamlTest, AnUnknownKeyFarFromAllListsThem) {
  EXPECT_EQ(Complaint("steps: 2\nzebra: 1\n",
                      [](YamlReader& root) {
                        ReadSteps(root);
                        root.Has("data");
                      }),
            "job.yaml:2:1: error: zebra: unknown key\n  hint: known keys: data, steps");
}

TEST(YamlTest, AtMostTwentyProblemsAreShown) {
  std::string text = "steps: 1\n";
  for (int i = 0; i < 25; ++i) {
    text += fmt::format("unknown_{}: 1\n", i);
  }
  const std::string complaint = Complaint(text, ReadSteps);
  EXPECT_THAT(complaint, HasSubstr("job.yaml:21:1: error"));
  EXPECT_THAT(complaint, testing::Not(HasSubstr("job.yaml:22:1")));
  EXPECT_THAT(complaint, testing::EndsWith("\n5 more problems"));
}

TEST(YamlTest, RangesNameTheirBounds) {
  const auto ask = [](const Range<double>& range) {
    return Complaint("x: 2\n", [&](YamlReader& root) { root.Required<double>("x", range); });
  };
  EXPECT_EQ(ask({.least = 2.0, .most = 2.0}), "");
  EXPECT_EQ(ask({.above = 2.0}), "job.yaml:1:4: error: x: expected above 2, got '2'");
  EXPECT_EQ(ask({.least = 0.0, .below = 1.0}),
            "job.yaml:1:4: error: x: expected at least 0 and below 1, got '2'");
  EXPECT_EQ(Complaint("x: 1MiB\n",
                      [&](YamlReader& root) {
                        root.Required<ByteSize>("x", {.least = ByteSize{1 << 30}});
                      }),
            "job.yaml:1:4: error: x: expected at least 1GiB, got '1MiB'");
  EXPECT_THAT(
      Complaint("x: 9223372036854775808\n", [](YamlReader& root) { root.Required<int64_t>("x"); }),
      HasSubstr("expected an integer"));
  EXPECT_THAT(Complaint("x: -1\n", [](YamlReader& root) { root.Required<uint64_t>("x"); }),
              HasSubstr("expected an integer"));
}

TEST(YamlTest, RefusesTheRestOfYaml) {
  const auto none = [](YamlReader&) {};
  EXPECT_THAT(Complaint("a: [1\nb: 2\n", none), HasSubstr("job.yaml:2:"));
  EXPECT_EQ(Complaint("", none), "job.yaml:1:1: error: expected a mapping, got nothing");
  EXPECT_EQ(Complaint("- 1\n", none), "job.yaml:1:1: error: expected a mapping, got a list");
  EXPECT_EQ(Complaint("steps: 1\n---\nsteps: 2\n", none),
            "job.yaml:3:1: error: a second document: one a file is allowed");
  EXPECT_EQ(Complaint("steps: &x 1\n", ReadSteps),
            "job.yaml:1:8: error: steps: an anchor is not allowed\n  hint: write the value out "
            "where it is needed");
  EXPECT_THAT(Complaint("steps: &x 1\nb: *x\n", ReadSteps),
              HasSubstr("job.yaml:2:4: error: b: an alias is not allowed"));
  EXPECT_THAT(Complaint("steps: 1\n<<: {a: 1}\n", ReadSteps),
              HasSubstr("a merge key is not allowed"));
  EXPECT_THAT(Complaint("steps: !!int 1\n", ReadSteps), HasSubstr("a tag is not allowed"));
  EXPECT_THAT(Complaint("steps: null\n", ReadSteps), HasSubstr("expected an integer, got nothing"));
  EXPECT_THAT(Complaint("? [a]\n: 1\n", none), HasSubstr("a key must be a plain word"));
  EXPECT_THAT(Complaint(std::string("a: 1\nb: \0", 9), none),
              HasSubstr("job.yaml:2:1: error: a NUL byte"));
}

TEST(YamlTest, HostileTextEndsInAnError) {
  const auto none = [](YamlReader&) {};
  EXPECT_THAT(Complaint(std::string(40, '[') + std::string(40, ']'), none),
              HasSubstr("nested deeper than 32 levels"));
  EXPECT_THAT(Complaint(std::string(10000, '['), none), HasSubstr("error"));
  EXPECT_THAT(Complaint(std::string(10000, '{'), none), HasSubstr("error"));
  EXPECT_THAT(Complaint(std::string(YamlDocument::kBytesMax + 1, ' '), none),
              HasSubstr("at most 1048576"));
  EXPECT_THAT(Complaint("\xff\xfe\x00", none), HasSubstr("error"));
}

TEST(YamlTest, OverridesReplaceAndAdd) {
  Result<YamlDocument> document = YamlDocument::Parse(
      "steps: 4\nworkers: [{name: a}, {name: b}]\n", "job.yaml",
      {"steps=6", "model.width=64", "workers.1.name=c", "list=[1, 2]", "text=a=b"});
  ASSERT_TRUE(document.ok()) << document.status().message();
  EXPECT_EQ(document->Emit(),
            "steps: 6\nworkers:\n  -\n    name: a\n  -\n    name: c\nmodel:\n  width: 64\nlist:\n  "
            "- 1\n  - 2\n"
            "text: \"a=b\"\n");
  YamlReader root = document->Root();
  EXPECT_EQ(root.Required<int64_t>("steps"), 6);
}

TEST(YamlTest, OverridesAreNamedInMessages) {
  EXPECT_EQ(Complaint("steps: 4\n", ReadSteps, {"steps=many"}),
            "--set steps: error: steps: expected an integer, got 'many'");
  EXPECT_EQ(Complaint("steps: 4\n", ReadSteps, {"stops=5"}),
            "--set stops: error: stops: unknown key\n  hint: did you mean 'steps'?");
  EXPECT_EQ(Complaint("steps: 4\n", ReadSteps, {"steps"}), "--set steps: expected KEY.PATH=VALUE");
  EXPECT_EQ(Complaint("steps: 4\n", ReadSteps, {"steps.x=1"}),
            "--set steps.x: steps is '4', which has no 'x'");
  EXPECT_EQ(Complaint("a: [1]\n", ReadSteps, {"a.1=1"}),
            "--set a.1: a is a list, which has no '1'");
  EXPECT_EQ(Complaint("steps: 4\n", ReadSteps, {"steps=[1"}),
            "--set steps: '[1' is not a YAML value");
  EXPECT_THAT(Complaint("steps: 4\n", ReadSteps, {"steps="}), HasSubstr("got nothing"));
  EXPECT_THAT(Complaint("steps: 4\n", ReadSteps, {"a..b=1"}), HasSubstr("has no ''"));
}

TEST(YamlTest, PathsStartAtTheFileAndOverriddenOnesAtTheUser) {
  Result<YamlDocument> document = YamlDocument::Parse("data: ../text\nother: x\nlist: [a, /b]\n",
                                                      "/jobs/one/job.yaml", {"other=y"});
  ASSERT_TRUE(document.ok());
  YamlReader root = document->Root();
  EXPECT_EQ(root.RequiredPath("data"), "/jobs/one/../text") << "/jobs is not there";
  EXPECT_EQ(root.OptionalPath("other", "z"), "y");
  EXPECT_THAT(root.PathList("list"), ElementsAre("/jobs/one/a", "/b"));
  EXPECT_EQ(document->Emit({.absolute_paths = true}),
            fmt::format("data: /jobs/one/../text\nother: {}/y\nlist:\n  - /jobs/one/a\n  - /b\n",
                        std::filesystem::current_path().string()));
  EXPECT_THAT(document->Emit(), HasSubstr("data: ../text\n"));
}

TEST(YamlTest, CrossChecksStandWhereTheirValueStands) {
  EXPECT_EQ(Complaint("steps: 4\nbatch: 7\n",
                      [](YamlReader& root) {
                        ReadSteps(root);
                        root.Has("batch");
                        root.Fail("batch", "7 cannot be split by 2", "write a multiple of 2");
                        root.Fail("", "no worker");
                      }),
            "job.yaml:1:1: error: no worker\n"
            "job.yaml:2:8: error: batch: 7 cannot be split by 2\n"
            "  hint: write a multiple of 2");
  const Result<YamlDocument> document = YamlDocument::Parse("a:\n  b: [x, y]\n", "job.yaml");
  EXPECT_EQ(document->ErrorAt("a.b.1", "no such file").message(),
            "job.yaml:2:10: error: a.b.1: no such file");
  EXPECT_EQ(document->ErrorAt("a.c", "absent").message(), "job.yaml:2:3: error: a.c: absent");
}

TEST(YamlTest, ValuesThatDoNotGoTogetherStandWhereAnOverrideSetOneOfThem) {
  const auto among = [](const std::vector<std::string>& overrides) {
    return Complaint(
        "steps: 4\nrate:\n  warmup: 9\n",
        [](YamlReader& root) {
          ReadSteps(root);
          root.OptionalChild("rate").Has("warmup");
          root.FailAmong({"rate.warmup", "steps", "rate.absent"}, "9 exceeds 4", "a");
        },
        overrides);
  };
  EXPECT_EQ(among({}), "job.yaml:3:11: error: 9 exceeds 4\n  hint: a");
  EXPECT_EQ(among({"steps=4"}), "--set steps: error: 9 exceeds 4\n  hint: a");
  EXPECT_EQ(among({"steps=4", "rate.warmup=9"}),
            "--set rate.warmup: error: 9 exceeds 4\n  hint: a");
}

TEST(YamlTest, AFileThatIsNotThereIsNamed) {
  const TemporaryFolder folder;
  const auto document = YamlDocument::Load(folder.path() + "/none.yaml");
  EXPECT_EQ(document.status().message(),
            "open " + folder.path() + "/none.yaml: No such file or directory");
}

TEST(YamlTest, EmittedTextStaysText) {
  const std::string text =
      "\"null\": \"null\"\nlist: [\"Null\", \"~\", \"true\", \"5\", \"-\", \"a: b\", \"#\", word, "
      "7, false]\n";
  const Result<YamlDocument> document = YamlDocument::Parse(text, "x");
  ASSERT_TRUE(document.ok()) << document.status().message();
  const std::string emitted = document->Emit();
  EXPECT_EQ(
      emitted,
      "\"null\": \"null\"\nlist:\n  - \"Null\"\n  - \"~\"\n  - \"true\"\n  - \"5\"\n  - \"-\"\n"
      "  - \"a: b\"\n  - \"#\"\n  - word\n  - 7\n  - false\n");
  EXPECT_EQ(YamlDocument::Parse(emitted, "x")->Emit(), emitted);
}

TEST(YamlTest, TheHashIgnoresLayoutAndSeesContent) {
  const auto hash = [](const std::string& text) { return YamlDocument::Parse(text, "x")->Hash(); };
  EXPECT_EQ(hash("a: 1\nb: {c: [x]}\n"), hash("# note\nb:\n  c:\n    - 'x'\na: 1\n"));
  EXPECT_NE(hash("a: 1\n"), hash("a: 2\n"));
  EXPECT_NE(hash("a: 1\n"), hash("a: '1'\n"));
  EXPECT_EQ(hash("a: 1\n").size(), 32U);
}

}  // namespace
}  // namespace heddle
