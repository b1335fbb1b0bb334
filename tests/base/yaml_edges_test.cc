/// \file
/// Bounds of the YAML reader on both of their sides, every kind of wrong value in every kind of
/// place, and texts that must be quoted.
#include <functional>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/yaml/yaml.h"
#include "tests/base/complaint.h"

namespace heddle {
namespace {

using testing::ElementsAre;
using testing::EndsWith;
using testing::HasSubstr;
using testing::IsEmpty;

/// Of "x: VALUE", read as a T; without the place.
template <typename T>
std::string Ask(const std::string& value, const Range<T>& range = {}) {
  const std::string all =
      Complaint("x: " + value + "\n", [&](YamlReader& root) { root.Required<T>("x", range); });
  return all.empty() ? "" : all.substr(all.find("x: ") + 3);
}

TEST(YamlEdgesTest, NumbersAreWrittenInOneWay) {
  for (const char* good : {"0", "-0", "7", "-7", "10", "2147483647", "-2147483648"}) {
    EXPECT_EQ(Ask<int32_t>(good), "") << good;
  }
  const std::string zeros = "\n  hint: integers are decimal, without leading zeros";
  EXPECT_EQ(Ask<int32_t>("00"), "expected an integer, got '00'" + zeros);
  EXPECT_EQ(Ask<int32_t>("0.5"), "expected an integer, got '0.5'" + zeros);
  for (const char* bad : {"-01", "2147483648", "-2147483649", "+1", "5x", "1.0", "~5"}) {
    EXPECT_EQ(Ask<int32_t>(bad), fmt::format("expected an integer, got '{}'", bad));
  }
  for (const char* good : {"5", "-5.5", "1e3", "0.5", "00.5"}) {
    EXPECT_EQ(Ask<double>(good), "") << good;
  }
  for (const char* bad : {"inf", "nan", "1e999", "5x", "+1"}) {
    EXPECT_EQ(Ask<double>(bad), fmt::format("expected a number, got '{}'", bad));
  }
  EXPECT_EQ(Ask<bool>("false"), "");
  EXPECT_EQ(Ask<bool>("True"), "expected true or false, got 'True'");
  EXPECT_EQ(Ask<bool>("'true'"), "expected true or false, got 'true'\n  hint: remove the quotes");
  EXPECT_EQ(Ask<double>("'1'"), "expected a number, got '1'\n  hint: remove the quotes");
  EXPECT_EQ(Ask<std::string>("'1'"), "");
  EXPECT_EQ(Ask<ByteSize>("'1B'"), "");
  EXPECT_EQ(Ask<ByteRate>("1"),
            "expected a rate, got '1'\n  hint: write a number and a unit: 100Mbit, 1Gbit, 10MB/s");
  EXPECT_EQ(Ask<Duration>("[1]"), "expected a duration, got a list");
}

TEST(YamlEdgesTest, EveryBoundHoldsOnItsOwnSideAndIsNamed) {
  using R = Range<int64_t>;
  const std::vector<std::tuple<R, std::vector<int>, std::string>> cases = {
      {{}, {1, 2, 3, 4, 5}, ""},
      {{.least = 3}, {3, 4, 5}, "at least 3"},
      {{.most = 3}, {1, 2, 3}, "at most 3"},
      {{.above = 3}, {4, 5}, "above 3"},
      {{.below = 3}, {1, 2}, "below 3"},
      {{.least = 2, .most = 4}, {2, 3, 4}, "2..4"},
      {{.least = 2, .below = 4}, {2, 3}, "at least 2 and below 4"},
      {{.most = 4, .above = 2}, {3, 4}, "above 2 and at most 4"},
      {{.above = 2, .below = 4}, {3}, "above 2 and below 4"},
  };
  for (const auto& [range, allowed, text] : cases) {
    for (int value = 1; value <= 5; ++value) {
      const bool fits = std::find(allowed.begin(), allowed.end(), value) != allowed.end();
      EXPECT_EQ(Ask<int64_t>(std::to_string(value), range),
                fits ? "" : fmt::format("expected {}, got '{}'", text, value));
    }
  }
  EXPECT_EQ(Ask<Duration>("1s", {.above = std::chrono::seconds(2)}), "expected above 2s, got '1s'");
  EXPECT_EQ(Ask<ByteRate>("1Mbit", {.least = ByteRate{125e6}}),
            "expected at least 1Gbit, got '1Mbit'");
  EXPECT_EQ(Ask<std::string>("a", {.least = "b", .most = "c"}), "expected b..c, got 'a'");
}

TEST(YamlEdgesTest, LongAndManyLinedTextsAreCutForMessages) {
  const std::string sixty(60, 'a');
  EXPECT_EQ(Ask<bool>(sixty), "expected true or false, got '" + sixty + "'");
  EXPECT_EQ(Ask<bool>(sixty + "b"), "expected true or false, got '" + sixty + "…'");
  EXPECT_EQ(Ask<bool>("\"a\\nb\""), "expected true or false, got 'a b'\n  hint: remove the quotes");
}

enum class Colour { kRed, kGreen };
const YamlChoices<Colour> kColours = {{"red", Colour::kRed}, {"green", Colour::kGreen}};

TEST(YamlEdgesTest, WhatIsOfAnotherKindIsNotedWhereItStands) {
  const std::string text =
      "map: {a: 1}\n"
      "word: w\n"
      "empty:\n"
      "list: [1, x, {b: 2}]\n"
      "rows: [{n: 1}, 5]\n"
      "path: [a, {c: 1}]\n";
  EXPECT_EQ(
      Complaint(text,
                [](YamlReader& root) {
                  root.Child("map").Required<int64_t>("a");
                  EXPECT_FALSE(root.Child("word").present());
                  EXPECT_FALSE(root.OptionalChild("empty").present());
                  EXPECT_THAT(root.List<int64_t>("list"), ElementsAre(1));
                  EXPECT_THAT(root.List<int64_t>("word"), IsEmpty());
                  EXPECT_EQ(root.Children("rows").size(), 1U);
                  EXPECT_THAT(root.Children("word"), IsEmpty());
                  EXPECT_THAT(root.Children("none"), IsEmpty());
                  EXPECT_EQ(root.Children("rows")[0].Required<int64_t>("n"), 1);
                  EXPECT_THAT(root.PathList("path"), ElementsAre("a", ""));
                  EXPECT_EQ(root.OptionalPath("map", "other"), "");
                  EXPECT_EQ(root.RequiredPath("absent"), "");
                  EXPECT_EQ(root.RequiredChoice("map", kColours), Colour::kRed);
                  EXPECT_EQ(root.OptionalChoice("word", Colour::kGreen, kColours), Colour::kGreen);
                  EXPECT_EQ(root.RequiredChoice("colour", kColours), Colour::kRed);
                  EXPECT_EQ(root.OptionalChoice("hue", Colour::kGreen, kColours), Colour::kGreen);
                  root.Required<int64_t>("twice");
                  root.Required<int64_t>("twice");
                  root.Required<bool>("twice");
                }),
      "job.yaml:1:1: error: absent: missing, expected a path\n"
      "job.yaml:1:1: error: colour: missing, expected one of red, green\n"
      "job.yaml:1:1: error: twice: missing, expected an integer\n"
      "job.yaml:1:1: error: twice: missing, expected true or false\n"
      "job.yaml:1:6: error: map: expected a text, got a mapping\n"
      "job.yaml:1:6: error: map: expected one of red, green, got a mapping\n"
      "job.yaml:2:7: error: word: expected a mapping, got 'w'\n"
      "job.yaml:2:7: error: word: expected an integer, got 'w'\n"
      "job.yaml:2:7: error: word: expected a list of mappings, got 'w'\n"
      "job.yaml:2:7: error: word: expected one of red, green, got 'w'\n"
      "job.yaml:3:1: error: empty: expected a mapping, got nothing\n"
      "job.yaml:4:11: error: list.1: expected an integer, got 'x'\n"
      "job.yaml:4:14: error: list.2: expected an integer, got a mapping\n"
      "job.yaml:5:16: error: rows.1: expected a mapping, got '5'\n"
      "job.yaml:5:16: error: rows.1: expected a mapping, got '5'\n"

      "job.yaml:6:11: error: path.1: expected a text, got a mapping");
}

TEST(YamlEdgesTest, KindsCanBeAskedFor) {
  EXPECT_EQ(
      Complaint(
          "a: {}\nb: []\nc: 1\n",
          [](YamlReader& root) {
            const std::vector<std::tuple<std::string, bool, bool>> kinds = {
                {"a", true, true}, {"b", true, false}, {"c", true, false}, {"d", false, false}};
            for (const auto& [key, has, mapping] : kinds) {
              EXPECT_EQ(root.Has(key), has);
              EXPECT_EQ(root.IsMapping(key), mapping);
            }
            EXPECT_EQ(root.List<int64_t>("b").size(), 0U);
          }),
      "");
}

TEST(YamlEdgesTest, PathsOfUrlsAndOfOneWordAreKept) {
  Result<YamlDocument> document =
      YamlDocument::Parse("url: s3://b/x\none: x\nurls: [http://h/y]\n", "/jobs/job.yaml", {});
  ASSERT_TRUE(document.ok());
  YamlReader root = document->Root();
  EXPECT_EQ(root.RequiredPath("url"), "s3://b/x");
  EXPECT_THAT(root.PathList("one"), ElementsAre("/jobs/x"));
  EXPECT_THAT(root.PathList("urls"), ElementsAre("http://h/y"));
  EXPECT_THAT(root.PathList("none"), IsEmpty());
  EXPECT_EQ(root.OptionalPath("none", "fallback"), "fallback");
  EXPECT_EQ(root.OptionalPath("one", "fallback"), "/jobs/x");
  EXPECT_EQ(document->Emit({.absolute_paths = true}),
            "url: \"s3://b/x\"\none: /jobs/x\nurls:\n  - \"http://h/y\"\n");
}

TEST(YamlEdgesTest, UnknownKeysAreFoundWhereSomebodyLooked) {
  const std::string text =
      "seen: {a: 1, b: 2}\nlist: [{a: 1, c: 3}, {a: 1}]\nunseen: {x: {y: 1}}\n";
  EXPECT_EQ(Complaint(text,
                      [](YamlReader& root) {
                        root.Child("seen").Required<int64_t>("a");
                        root.Children("list")[0].Required<int64_t>("a");
                        root.Has("unseen");
                      }),
            "job.yaml:1:14: error: seen.b: unknown key\n  hint: known keys: a\n"
            "job.yaml:2:15: error: list.0.c: unknown key\n  hint: known keys: a\n"
            "job.yaml:2:23: error: list.1.a: unknown key");
}

TEST(YamlEdgesTest, ANameIsProposedWhenAThirdOfItIsRight) {
  const auto hint = [](const std::string& key, const std::string& known) {
    const std::string all =
        Complaint(key + ": 1\n", [&](YamlReader& root) { root.Optional<int64_t>(known, 0); });
    return all.substr(all.find("hint: ") + 6);
  };
  EXPECT_EQ(hint("stpes", "steps"), "did you mean 'steps'?");              // Two letters of five.
  EXPECT_EQ(hint("stxyz", "steps"), "known keys: steps");                  // Three.
  EXPECT_EQ(hint("abcdefghi", "abcdefxyz"), "did you mean 'abcdefxyz'?");  // Three of nine.
  EXPECT_EQ(hint("abcdefghi", "abcdewxyz"), "known keys: abcdewxyz");      // Four of nine.
  EXPECT_EQ(hint("ab", "xy"), "known keys: xy");                           // Nothing in common.
  EXPECT_EQ(hint("ab", "abc"), "did you mean 'abc'?");
  EXPECT_EQ(hint("abcd", "bcd"), "did you mean 'bcd'?");
  const std::string most(64, 'a');
  EXPECT_EQ(hint(most, most.substr(1)), "did you mean '" + most.substr(1) + "'?");
  EXPECT_EQ(hint(most + "a", most), "known keys: " + most);
  // The nearest of several; of two that are as near the first in order.
  EXPECT_EQ(Complaint("stepz: 1\n",
                      [](YamlReader& root) {
                        root.Has("stepss");
                        root.Has("steps");
                        root.Has("stept");
                      }),
            "job.yaml:1:1: error: stepz: unknown key\n  hint: did you mean 'steps'?");
}

TEST(YamlEdgesTest, TwentyProblemsAreAllShown) {
  std::string text;
  for (int i = 0; i < 20; ++i) {
    text += fmt::format("a{}: 1\n", i);
  }
  const auto none = [](YamlReader&) {};
  EXPECT_THAT(Complaint(text, none), EndsWith("job.yaml:20:1: error: a19: unknown key"));
  EXPECT_THAT(Complaint(text + "b: 1\n", none), EndsWith("a19: unknown key\n1 more problems"));
}

TEST(YamlEdgesTest, CrossChecksOfWhatIsNotThereStandAtTheirMapping) {
  EXPECT_EQ(Complaint("a: 1\nb:\n  c: 1\n",
                      [](YamlReader& root) {
                        root.Has("a");
                        YamlReader b = root.Child("b");
                        b.Has("c");
                        b.Fail("d", "not there");
                        b.Fail("", "as a whole");
                        root.OptionalChild("e").Fail("f", "nowhere");
                      }),
            "job.yaml:1:1: error: e.f: nowhere\n"
            "job.yaml:3:3: error: b.d: not there\n"
            "job.yaml:3:3: error: b: as a whole");
  const Result<YamlDocument> document = YamlDocument::Parse("a:\n  b: [x, {c: y}]\n", "job.yaml");
  const auto at = [&](const std::string& path) {
    const std::string message(document->ErrorAt(path, "m", "h").message());
    EXPECT_THAT(message, EndsWith(": error: " + path + ": m\n  hint: h"));
    return message.substr(0, message.find(": error"));
  };
  EXPECT_EQ(at("a"), "job.yaml:2:3");
  EXPECT_EQ(at("a.b"), "job.yaml:2:6");
  EXPECT_EQ(at("a.b.0"), "job.yaml:2:7");
  EXPECT_EQ(at("a.b.1.c"), "job.yaml:2:14");
  EXPECT_EQ(at("a.b.2"), "job.yaml:2:6");
  EXPECT_EQ(at("a.b.x"), "job.yaml:2:6");
  EXPECT_EQ(at("a.b.0.z"), "job.yaml:2:7");
  EXPECT_EQ(at("z.b"), "job.yaml:1:1");
}

TEST(YamlEdgesTest, WhatIsForbiddenIsForbiddenEverywhere) {
  const auto message = [](const std::string& text) {
    return Complaint(text, [](YamlReader& root) {
      root.Has("a");
      root.Has("b");
      root.Has("<<");
    });
  };
  for (const char* value : {"1", "[1]", "{c: 1}", "", "'x'"}) {
    const std::string plain = fmt::format("a: {}\n", value);
    EXPECT_EQ(message(plain), "");
    EXPECT_THAT(message(fmt::format("a: &x {}\n", value)),
                HasSubstr("error: a: an anchor is not allowed\n  hint: write the value out where"));
  }
  for (const char* value : {"!!str 1", "!!seq [1]", "!mine {c: 1}"}) {
    EXPECT_THAT(message(fmt::format("a: {}\n", value)),
                HasSubstr("error: a: a tag is not allowed, got '"));
  }
  EXPECT_THAT(message("a: [0, {b: &x 1}]\n"), HasSubstr("error: a.1.b: an anchor is not allowed"));
  EXPECT_EQ(message("\"<<\": {c: 1}\n"), "");
  for (const char* text : {"\"\": 1\n", "? {a: 1}\n: 1\n", "? [a]\n: 1\n", "? \n: 1\n"}) {
    EXPECT_THAT(message(text), HasSubstr("a key must be a plain word")) << text;
  }
  EXPECT_EQ(message("a: 1\nb: {c: 1, c: 2}\n"),
            "job.yaml:2:11: error: b.c: duplicate key\n  hint: first set at line 2");
}

TEST(YamlEdgesTest, DepthAndSizeHaveTheirLimits) {
  const auto none = [](YamlReader& root) { root.Has("a"); };
  const auto nested = [&](size_t depth) {  // The root is one.
    return Complaint("a: " + std::string(depth - 1, '[') + std::string(depth - 1, ']') + "\n",
                     none);
  };
  EXPECT_EQ(nested(32), "");
  EXPECT_EQ(nested(33), "job.yaml:1:35: error: nested deeper than 32 levels");
  std::string full = "a: 1\n";
  full.resize(YamlDocument::kBytesMax, '\n');
  EXPECT_EQ(Complaint(full, none), "");
  EXPECT_EQ(Complaint(full + "\n", none), "job.yaml: 1048577 bytes, at most 1048576 are read");
  EXPECT_EQ(Complaint(std::string("\0a: 1\n", 6), none),
            "job.yaml:1:1: error: a NUL byte: this is not a text file");
  EXPECT_EQ(Complaint(std::string("a: 1\n\n\0", 7), none),
            "job.yaml:3:1: error: a NUL byte: this is not a text file");
}

TEST(YamlEdgesTest, OverridesReachEverywhereAndStandWhereTheyWereWritten) {
  const auto read = [](YamlReader& root) {
    YamlReader a = root.OptionalChild("a");
    a.Optional<int64_t>("b", 0);
    a.List<int64_t>("c");
  };
  EXPECT_EQ(Complaint("{}\n", read, {"a={b: x, c: [1, y]}"}),
            "--set a: error: a.b: expected an integer, got 'x'\n"
            "--set a: error: a.c.1: expected an integer, got 'y'");
  EXPECT_EQ(Complaint("a:\n", read, {"a.b=x"}),
            "--set a.b: error: a.b: expected an integer, got 'x'");
  EXPECT_EQ(Complaint("a: {c: [1, 2]}\n", read, {"a.c.1=z"}),
            "--set a.c.1: error: a.c.1: expected an integer, got 'z'");
  EXPECT_EQ(Complaint("a: 1\n", read, {"=1"}), "--set =1: expected KEY.PATH=VALUE");
  EXPECT_EQ(Complaint("a: {c: [1]}\n", read, {"a.c.x=1"}),
            "--set a.c.x: a.c is a list, which has no 'x'");
  EXPECT_EQ(Complaint("a: {c: [1]}\n", read, {"a.c.0x=1"}),
            "--set a.c.0x: a.c is a list, which has no '0x'");
  EXPECT_EQ(Complaint("a: {c: [1]}\n", read, {"a.=1"}),
            "--set a.: a is a mapping, which has no ''");
  EXPECT_EQ(Complaint("[1]\n", read, {"a=1"}), "--set a: the document is a list, which has no 'a'");
  EXPECT_EQ(Complaint("a: {}\n", read, {"a={b: 1, b: 2}"}),
            "--set a: '{b: 1, b: 2}' is not a YAML value");
  EXPECT_EQ(Complaint("a: {b: 1}\n", read, {"a.b=2", "a.b=3"}), "");
}

TEST(YamlEdgesTest, WhatIsEmittedIsQuotedWhereItMustBe) {
  const auto emitted = [](const std::string& text) {
    const Result<YamlDocument> document = YamlDocument::Parse(text, "x");
    EXPECT_TRUE(document.ok()) << document.status().message();
    const std::string out = document->Emit();
    EXPECT_EQ(YamlDocument::Parse(out, "x")->Emit(), out);
    return out;
  };
  EXPECT_EQ(emitted("a: []\nb: {}\nc:\nd: [[1, []], {e: {}}]\n"),
            "a: []\nb: {}\nc: null\nd:\n  -\n    - 1\n    - []\n  -\n    e: {}\n");
  EXPECT_EQ(emitted("\"a b\": \"\\\"\\\\\\n\\t\\r\\x01\\x7f\\x1fé\"\n"),
            "\"a b\": \"\\\"\\\\\\n\\t\\r\\u0001\\u007f\\u001fé\"\n");
  for (const char* plain : {"-1", "-a", "/x", "_x", ".x", "a-b_c.d/e+f*g(h)", "0", "azAZ09"}) {
    EXPECT_EQ(emitted(fmt::format("x: {}\n", plain)), fmt::format("x: {}\n", plain));
  }
  for (const char* quoted : {"null", "Null", "NULL", "...", "-", "--", "+1", "*x", "(x", "a b",
                             "a:", "@", "true", "false", "5", "a5", ""}) {
    EXPECT_EQ(emitted(fmt::format("x: \"{}\"\n", quoted)), fmt::format("x: \"{}\"\n", quoted));
  }
  EXPECT_EQ(emitted("x: 'word'\n"), "x: word\n");
  const Result<YamlDocument> document = YamlDocument::Parse("b: {d: 1, c: 2}\na: 3\n", "x");
  EXPECT_EQ(document->Emit({.sorted = true}), "a: 3\nb:\n  c: 2\n  d: 1\n");
  EXPECT_EQ(document->Emit(), "b:\n  d: 1\n  c: 2\na: 3\n");
}

}  // namespace
}  // namespace heddle
