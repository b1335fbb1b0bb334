/// \file
/// Random documents survive Emit() and Parse(); random damage to a document never does more than
/// give an error.
#include <string>

#include <gtest/gtest.h>

#include "base/random.h"
#include "base/yaml/yaml.h"
#include "tests/support/seed.h"

namespace heddle {
namespace {

std::string RandomScalar(Random& random) {
  // Text that a careless emitter would leave unquoted and a reader would take for something else.
  constexpr const char* kHard[] = {"null",   "true", "~",   "-",   "--- a", "a: b", "a #b", " lead",
                                   "trail ", "0x10", "1e3", "*a",  "&a",    "!t",   "%x",   "@x",
                                   "`x",     "[",    "}",   "a,b", "|",     ">",    "\\",   "\"",
                                   "'",      "a\nb", "\t",  "é",   "?",     ":",    "- a",  "...",
                                   "<<",     "=",    "",    "\x01"};
  std::string out;
  for (uint64_t i = random.Below(3) + 1; i > 0; --i) {
    out += random.Below(2) == 0 ? kHard[random.Below(std::size(kHard))]
                                : fmt::format("{}", random.Below(100));
  }
  return out;
}

/// JSON's escapes are YAML's in double quotes.
std::string Quoted(const std::string& text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (static_cast<unsigned char>(c) < 0x20) {
      out += fmt::format("\\x{:02x}", static_cast<unsigned>(c));
    } else {
      out += c;
    }
  }
  return out + "\"";
}

TEST(YamlRandomTest, EmittedTextReadsAsTheSameStrings) {
  Random random(testing::TestSeed());
  for (int round = 0; round < 300; ++round) {
    std::vector<std::string> values;
    std::string text = "list: [";
    for (uint64_t i = random.Below(6) + 1; i > 0; --i) {
      values.push_back(RandomScalar(random));
      text += (values.size() > 1 ? ", " : "") + Quoted(values.back() + ".");
    }
    const std::string key = RandomScalar(random) + "k";
    text += "]\n" + Quoted(key) + ": {inner: " + Quoted(values.front() + ".") + "}\n";
    Result<YamlDocument> first = YamlDocument::Parse(text, "first");
    ASSERT_TRUE(first.ok()) << first.status().message() << "\n" << text;
    const std::string emitted = first->Emit();
    Result<YamlDocument> second = YamlDocument::Parse(emitted, "second");
    ASSERT_TRUE(second.ok()) << second.status().message() << "\n" << emitted;
    YamlReader root = second->Root();
    const std::vector<std::string> read = root.List<std::string>("list");
    ASSERT_EQ(read.size(), values.size());
    for (size_t i = 0; i < values.size(); ++i) {
      EXPECT_EQ(read[i], values[i] + ".") << emitted;
    }
    EXPECT_EQ(root.Child(key).Required<std::string>("inner"), values.front() + ".") << emitted;
    EXPECT_EQ(second->Emit(), emitted);
    EXPECT_EQ(second->Hash(), first->Hash());
    EXPECT_EQ(second->Finish().message(), "") << emitted;
  }
}

TEST(YamlRandomTest, DamagedTextNeverCrashes) {
  Random random(testing::TestSeed());
  const std::string sound =
      "steps: 20\nmodel:\n  width: 64   # comment\n  list: [1, 2, {a: b}]\nworkers:\n  - name: "
      "'w0'\n"
      "    emulate: {speed: 0.5, memory: 1GiB}\n  - {name: \"w1\"}\ntext: |\n  lines\n  more\n";
  for (int round = 0; round < 3000; ++round) {
    std::string text = sound;
    for (uint64_t damage = random.Below(4) + 1; damage > 0; --damage) {
      const size_t place = random.Below(text.size());
      const char byte = "\n\t :-[]{},&*!|>'\"%@#?x\x80\xff"[random.Below(24)];
      switch (random.Below(3)) {
        case 0:
          text[place] = byte;
          break;
        case 1:
          text.insert(place, 1, byte);
          break;
        default:
          text.erase(place, random.Below(5) + 1);
          break;
      }
      text += ' ';
    }
    Result<YamlDocument> document = YamlDocument::Parse(text, "x", {"model.width=3"});
    if (document.ok()) {
      YamlReader root = document->Root();
      root.Optional<int64_t>("steps", 1);
      root.OptionalChild("model").List<int64_t>("list");
      document->Finish().IgnoreError("only that it returns matters");
      EXPECT_EQ(document->Hash().size(), 32U);
    }
  }
}

}  // namespace
}  // namespace heddle
