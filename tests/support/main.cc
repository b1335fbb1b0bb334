// The main of every test program: GoogleTest's own, save that a filter that matches nothing fails.
#include <cstdio>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

int main(int argc, char** argv) {
  testing::InitGoogleMock(&argc, argv);
  const int code = RUN_ALL_TESTS();
  const std::string filter = GTEST_FLAG_GET(filter);
  if (code == 0 && !GTEST_FLAG_GET(list_tests) &&
      testing::UnitTest::GetInstance()->test_to_run_count() == 0) {
    std::fprintf(stderr, "the filter '%s' matches no test\n", filter.c_str());
    return 1;
  }
  return code;
}
