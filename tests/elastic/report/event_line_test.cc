// What a line for people says of an event.
#include "elastic/report/event_line.h"

#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace heddle::elastic {
namespace {

// The words of a line of Markdown that stand between backquotes and are names.
std::vector<std::string> Quoted(const std::string& line) {
  std::vector<std::string> names;
  for (size_t begin = line.find('`'); begin != std::string::npos;) {
    const size_t end = line.find('`', begin + 1);
    if (end == std::string::npos) {
      break;
    }
    const std::string word = line.substr(begin + 1, end - begin - 1);
    if (word.find_first_not_of("abcdefghijklmnopqrstuvwxyz_0123456789") == std::string::npos) {
      names.push_back(word);
    }
    begin = line.find('`', end + 1);
  }
  return names;
}

using testing::EndsWith;
using testing::HasSubstr;
using testing::Not;

std::string LineOf(const std::string& json) {
  const auto event = ParseEvent(json);
  EXPECT_TRUE(event.ok()) << event.status().ToString();
  return event.ok() ? EventLine(*event) : "";
}

TEST(EventLineTest, TimesAreUtcWithMilliseconds) {
  EXPECT_EQ(FormatEventTime(0), "1970-01-01T00:00:00.000Z");
  EXPECT_EQ(FormatEventTime(1769860800.25), "2026-01-31T12:00:00.250Z");
  EXPECT_EQ(FormatEventTime(1769860799.9996), "2026-01-31T12:00:00.000Z") << "rounded";
  EXPECT_EQ(FormatEventTime(-1), "1970-01-01T00:00:00.000Z");
  EXPECT_EQ(FormatEventTime(1e300), "9999-12-31T23:59:59.000Z");
}

TEST(EventLineTest, KnownEventsAreSentences) {
  EXPECT_EQ(LineOf(R"({"time": 1769860800.25, "event": "worker_lost", "worker": "b", )"
                   R"("reason": "killed by SIGKILL"})"),
            "2026-01-31T12:00:00.250Z  worker_lost         b is lost: killed by SIGKILL");
  EXPECT_THAT(
      LineOf(
          R"({"time": 1, "event": "recovered", "source": "live", "predicted_seconds": 0.61, "seconds": 0.5834})"),
      EndsWith("after 0.5834 s from live; 0.61 s were predicted"));
  EXPECT_THAT(LineOf(R"({"time": 1, "event": "recovered", "generation": 3, "seconds": 2})"),
              EndsWith("after 2 s from ?; ? s were predicted"));
}

TEST(EventLineTest, OthersShowTheirFields) {
  EXPECT_THAT(LineOf(R"({"time": 1, "event": "new_thing", "a": 1, "b": "x", "c": [1, 2]})"),
              EndsWith("new_thing           a=1  b=x  c=[1,2]"));
  EXPECT_LT(
      LineOf(R"({"time": 1, "event": "new_thing", "c": ["a)" + std::string(1000, 'a') + R"("]})")
          .size(),
      300u);
}

TEST(EventLineTest, ALineIsOneLine) {
  const std::string line =
      LineOf(R"({"time": 1, "event": "warning", "message": "a\nb\u001b[31mc\u007fd ü"})");
  EXPECT_THAT(line, HasSubstr("a?b?[31mc?d ü"));
  EXPECT_THAT(line, Not(HasSubstr("\n")));
}

// Every event of the reference is known here with fields that it has.
TEST(EventLineTest, EveryEventOfTheReferenceIsASentence) {
  std::ifstream file(HEDDLE_EVENTS_PAGE);
  ASSERT_TRUE(file.is_open()) << HEDDLE_EVENTS_PAGE;
  std::stringstream text;
  text << file.rdbuf();
  const std::string page = text.str().substr(0, text.str().find("## Decisions"));
  int events = 0;
  const size_t table = page.find("| event | fields |");
  ASSERT_NE(table, std::string::npos);
  std::istringstream lines(page.substr(table));
  for (std::string row; std::getline(lines, row);) {
    if (!row.starts_with("| `")) {
      continue;
    }
    const std::vector<std::string> names = Quoted(row);
    std::string json = R"({"time": 1, "event": ")" + names.at(0) + "\"";
    for (size_t i = 1; i < names.size(); ++i) {
      json += ", \"" + names[i] + "\": \"value\"";
    }
    const std::string line = LineOf(json + "}");
    EXPECT_THAT(line, Not(HasSubstr("?"))) << json;
    EXPECT_THAT(line, Not(HasSubstr("="))) << json << ": it has no sentence";
    ++events;
  }
  EXPECT_GT(events, 20);
}

}  // namespace
}  // namespace heddle::elastic
