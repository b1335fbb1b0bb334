// What is said of one generation, from the lines of a log.
#include "elastic/report/explanation.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace heddle::elastic {
namespace {

using testing::HasSubstr;
using testing::Not;

constexpr const char* kLoss =
    R"({"time": 1769860800, "event": "decision", "generation": 3, "follows": 1, "cause": "loss", )"
    R"("evidence": [{"worker": "b", "what": "killed by SIGKILL", "silent_seconds": 0.12, "accusers": ["a", "c"]}], )"
    R"("alternatives": [{"what": "live", "step": 12, "predicted_seconds": 0.6}, )"
    R"({"what": "checkpoint", "step": 10, "predicted_seconds": 1.94}, {"what": "replicas", "note": "none are kept"}], )"
    R"("choice": "live", "reason": "the quickest of 2, by 1.34 s", "predicted_seconds": 0.6, "seconds": 0.45})";
constexpr const char* kJoin =
    R"({"time": 1769860900, "event": "decision", "generation": 5, "follows": 3, "cause": "join", )"
    R"("evidence": [{"worker": "e", "what": "joined"}], )"
    R"("alternatives": [{"what": "keep", "predicted_seconds": 100}, {"what": "replan", "predicted_seconds": 80.5}], )"
    R"("choice": "replan", "reason": "20 s are saved", "predicted_seconds": 0.5, "seconds": 0.4})";

class ExplanationsTest : public testing::Test {
 protected:
  void Note(const std::string& line) {
    const auto event = ParseEvent(line);
    ASSERT_TRUE(event.ok()) << event.status().ToString();
    explanations_.Note(*event);
  }
  std::string Explain(int64_t generation) {
    const auto text = explanations_.Explain(generation);
    return text.ok() ? *text : text.status().ToString();
  }

  Explanations explanations_;
};

TEST_F(ExplanationsTest, ALossFromItsCauseToItsSeconds) {
  Note(
      R"({"time": 1, "event": "plan", "generation": 1, "predicted_step_seconds": 0.048, "plan": {}})");
  Note(kLoss);
  Note(
      R"({"time": 1, "event": "plan", "generation": 3, "predicted_step_seconds": 0.052, "plan": {}})");
  Note(
      R"({"time": 1, "event": "recovered", "generation": 3, "predicted_seconds": 0.6, "seconds": 0.54})");
  EXPECT_EQ(Explain(3),
            "generation 3, in force since 2026-01-31T12:00:00.000Z, after generation 1\n"
            "\n"
            "What happened\n"
            "  a worker was lost\n"
            "\n"
            "What was known\n"
            "  b: killed by SIGKILL; its last word was 0.12 s before; reported by a, c\n"
            "\n"
            "What could be done, with the predicted seconds until the job is where it had been\n"
            "  * live, after step 12                0.60 s\n"
            "    checkpoint, after step 10          1.94 s\n"
            "    replicas                           not possible: none are kept\n"
            "\n"
            "What was chosen\n"
            "  live: the quickest of 2, by 1.34 s\n"
            "\n"
            "Predicted and actual\n"
            "  nobody trained for 0.45 s\n"
            "  where it had been: 0.60 s predicted, 0.54 s actual (10 % less)\n"
            "  a step: 0.052 s predicted, 0.048 s of generation 1\n");
}

TEST_F(ExplanationsTest, AChangeIsPricedOverTheRestOfTheJob) {
  Note(kJoin);
  const std::string text = Explain(5);
  EXPECT_THAT(text, HasSubstr("predicted seconds of the rest of the job"));
  EXPECT_THAT(text, HasSubstr("    keep                               100.00 s\n"));
  EXPECT_THAT(text, HasSubstr("  * replan                             80.50 s\n"));
  EXPECT_THAT(text, HasSubstr("nobody trained for: 0.50 s predicted, 0.40 s actual (20 % less)"));
  EXPECT_THAT(text, Not(HasSubstr("where it had been")));
}

TEST_F(ExplanationsTest, ARecoveryThatIsNotOverSaysSo) {
  Note(kLoss);
  EXPECT_THAT(Explain(3), HasSubstr("it is not where it had been yet"));
  Note(kJoin);
  EXPECT_THAT(Explain(3), HasSubstr("before generation 5 followed"));
}

TEST_F(ExplanationsTest, WhatWasNotDoneIsThere) {
  Note(kLoss);
  for (int i = 0; i < 7; ++i) {
    Note(
        R"({"time": 1769860801, "event": "plan_kept", "generation": 3, "cause": "drift", "evidence": [], )"
        R"("alternatives": [], "choice": "keep", "reason": "reason )" +
        std::to_string(i) + "\"}");
  }
  const std::string text = Explain(3);
  EXPECT_THAT(text, HasSubstr("2 changes before these\n"));
  EXPECT_THAT(text, Not(HasSubstr("reason 1\n")));
  EXPECT_THAT(text, HasSubstr("had changed for good: reason 2\n"));
  EXPECT_THAT(text, HasSubstr("reason 6\n"));
}

TEST_F(ExplanationsTest, WhatIsNotThereIsNamed) {
  EXPECT_EQ(explanations_.newest(), std::nullopt);
  EXPECT_THAT(Explain(1), HasSubstr("no generation of this run has a decision yet"));
  Note(kLoss);
  Note(kJoin);
  EXPECT_EQ(explanations_.newest(), 5);
  EXPECT_EQ(explanations_.Explain(4).status().code(), StatusCode::kNotFound);
  EXPECT_THAT(Explain(4),
              HasSubstr("generation 4 has no decision; the newest that have one: 3, 5"));
  EXPECT_EQ(explanations_.Explain(1).status().code(), StatusCode::kNotFound)
      << "a generation that was only followed";
  EXPECT_EQ(*explanations_.EntryOf(3), kLoss);
}

TEST_F(ExplanationsTest, ADamagedEntryIsAnError) {
  for (const char* evidence : {R"("x")", "[1]", "{}", "7"}) {
    Note(std::string(R"({"time": 1, "event": "decision", "generation": 3, "evidence": )") +
         evidence + R"(, "alternatives": []})");
    EXPECT_EQ(explanations_.Explain(3).status().code(), StatusCode::kInvalidArgument) << evidence;
  }
}

}  // namespace
}  // namespace heddle::elastic
