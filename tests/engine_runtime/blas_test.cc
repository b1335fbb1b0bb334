/// \file
/// Which BLAS is found in the text of /proc/self/maps, and what is said about it.
#include "engine/runtime/device/blas.h"

#include <ATen/Parallel.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace heddle::runtime {
namespace {

using ::testing::HasSubstr;

std::string Maps(const std::string& library) {
  return "55d0a000-55d0b000 r-xp 00000000 08:01 12 /usr/bin/heddle\n"
         "7f00a000-7f00b000 r-xp 00000000 08:01 99 " +
         library + "\n7f00c000-7f00d000 rw-p 00000000 00:00 0\n";
}

TEST(BlasTest, FindsTheLibraryByItsFolder) {
  const std::string lib = "/usr/lib/x86_64-linux-gnu/";
  EXPECT_EQ(FindBlas(Maps(lib + "openblas-openmp/libblas.so.3"), false).kind,
            BlasKind::kOpenBlasOpenMp);
  EXPECT_EQ(FindBlas(Maps(lib + "openblas-pthread/libopenblasp-r0.3.21.so"), false).kind,
            BlasKind::kOpenBlasPthread);
  EXPECT_EQ(FindBlas(Maps(lib + "blas/libblas.so.3.11.0"), false).kind, BlasKind::kReference);
  EXPECT_EQ(FindBlas(Maps("/usr/lib/libc.so.6"), false).kind, BlasKind::kUnknown);
  EXPECT_EQ(FindBlas(Maps("/usr/lib/libc.so.6"), true).kind, BlasKind::kMkl);
  EXPECT_EQ(FindBlas(Maps(lib + "blas/libblas.so.3.11.0"), false).path,
            lib + "blas/libblas.so.3.11.0");
}

TEST(BlasTest, WarnsAboutTheWrongOnesOnly) {
  EXPECT_EQ(BlasWarning({BlasKind::kOpenBlasOpenMp, "/x"}), "");
  EXPECT_EQ(BlasWarning({BlasKind::kMkl, ""}), "");
  EXPECT_THAT(BlasWarning({BlasKind::kOpenBlasPthread, "/a/b.so"}), HasSubstr("/a/b.so"));
  EXPECT_THAT(BlasWarning({BlasKind::kReference, "/a/b.so"}), HasSubstr("libopenblas0-openmp"));
  EXPECT_THAT(BlasWarning({}), HasSubstr("UNKNOWN BLAS"));
}

TEST(BlasTest, ThisProcessHasOne) {
  EXPECT_NE(LoadedBlas().kind, BlasKind::kUnknown);
}

TEST(BlasTest, ThreadsAreLibtorchs) {
  SetThreads(1);
  EXPECT_EQ(at::get_num_threads(), 1);
  SetThreads(2);
  EXPECT_EQ(at::get_num_threads(), 2);
}

}  // namespace
}  // namespace heddle::runtime
