// UTF-8 against the table of the Unicode standard (3-7, well-formed byte sequences).
#include "base/utf8.h"

#include <string>

#include <gtest/gtest.h>

namespace heddle {
namespace {

TEST(Utf8Test, WellFormedTextIs) {
  for (const std::string text :
       {"", "plain", "caf\xC3\xA9", "\xE2\x82\xAC", "\xF0\x9F\x98\x80", "\xC2\x80", "\xE0\xA0\x80",
        "\xED\x9F\xBF", "\xEE\x80\x80", "\xF0\x90\x80\x80", "\xF4\x8F\xBF\xBF"}) {
    EXPECT_TRUE(IsUtf8(text)) << text;
    EXPECT_TRUE(CheckUtf8("name", text).ok());
  }
  EXPECT_TRUE(IsUtf8(std::string(1, '\0')));
}

TEST(Utf8Test, WhatIsNotIsShownByItsBytes) {
  for (const std::string text :
       {"caf\xE9", "\x80", "\xC0\x80", "\xC1\xBF", "\xC3", "\xC3(", "\xE2\x82", "\xE0\x9F\xBF",
        "\xED\xA0\x80", "\xED\xBF\xBF", "\xF0\x8F\xBF\xBF", "\xF4\x90\x80\x80", "\xF5\x80\x80\x80",
        "\xFF"}) {
    EXPECT_FALSE(IsUtf8(text)) << CheckUtf8("name", text).message();
    EXPECT_FALSE(IsUtf8("a" + text + "b"));
  }
  EXPECT_EQ(CheckUtf8("--name", "caf\xE9").message(),
            "--name: not UTF-8, which other processes need: caf\\xe9");
}

TEST(Utf8Test, OnlyOddBytesAreReplaced) {
  EXPECT_EQ(ToUtf8(""), "");
  EXPECT_EQ(ToUtf8("caf\xC3\xA9"), "caf\xC3\xA9");
  EXPECT_EQ(ToUtf8("\xFF/caf\xC3\xA9/\xE2\x82(\xC3"), "\\xff/caf\xC3\xA9/\\xe2\\x82(\\xc3");
}

TEST(Utf8Test, AnErrorsMessageIs) {
  const Status status = NotFoundError("/data/{}: gone", "caf\xE9");
  EXPECT_EQ(status.message(), "/data/caf\\xe9: gone");
  EXPECT_EQ(status.WithContext("{}", "caf\xE9").message(), "caf\\xe9: /data/caf\\xe9: gone");
}

}  // namespace
}  // namespace heddle
