// Cards as a library in the place of NVML (tests/support/nvml) and the kernel module tell of them.
#include "engine/machine/cards.h"

#include <cstdlib>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/system/file.h"

namespace heddle::machine {
namespace {

using ::testing::IsEmpty;
using ::testing::SizeIs;

void Set(const char* name, const char* value) {
  ::setenv(name, value, 1);  // NOLINT(concurrency-mt-unsafe): the test has one thread.
}

class CardsTest : public ::testing::Test {
 protected:
  void SetUp() override {
    Set("FAKE_NVML_INIT", "0");
    Set("FAKE_NVML_DRIVER", "580.65.06");
    Set("FAKE_NVML_CARDS", "");
  }

  CardSources Nvml() const { return {.nvml = HEDDLE_FAKE_NVML, .proc = folder_.path()}; }
  CardSources KernelModule() const { return {.nvml = "libnone.so", .proc = folder_.path()}; }

  void Write(const std::string& path, const std::string& text) {
    const std::string whole = folder_.path() + "/" + path;
    ASSERT_TRUE(MakeFolders(FolderOf(whole)).ok());
    ASSERT_TRUE(WriteFileAtomically(whole, text).ok());
  }

  TemporaryFolder folder_;
};

TEST_F(CardsTest, AMachineWithoutADriverHasNone) {
  const Cards cards = FindCards(KernelModule());
  EXPECT_THAT(cards.list, IsEmpty());
  EXPECT_EQ(cards.driver, "");
  EXPECT_EQ(cards.fault, "");
}

TEST_F(CardsTest, NvmlTellsOfEachCard) {
  Set("FAKE_NVML_CARDS", "NVIDIA H100 80GB HBM3,81559,81000;NVIDIA GB10;lost;NVIDIA L4,23034,12");
  const Cards cards = FindCards(Nvml());
  EXPECT_EQ(cards.driver, "580.65.06");
  EXPECT_EQ(cards.fault, "");
  ASSERT_THAT(cards.list, SizeIs(4));
  EXPECT_EQ(cards.list[0].name, "NVIDIA H100 80GB HBM3");
  EXPECT_EQ(cards.list[0].memory_bytes, int64_t{81559} << 20);
  EXPECT_EQ(cards.list[0].free_bytes, int64_t{81000} << 20);
  EXPECT_EQ(cards.list[0].fault, "");
  EXPECT_EQ(cards.list[0].bus_id, "00000000:01:00.0");
  EXPECT_EQ(cards.list[1].name, "NVIDIA GB10");
  EXPECT_EQ(cards.list[1].memory_bytes, 0);
  EXPECT_EQ(cards.list[1].fault, "");
  EXPECT_EQ(cards.list[2].fault, "GPU is lost");
  EXPECT_EQ(cards.list[3].free_bytes, int64_t{12} << 20) << "a lost card hides no other";
  EXPECT_EQ(cards.list[3].bus_id, "00000000:04:00.0");
}

TEST_F(CardsTest, ALibraryThatIsNotNvmlIsNone) {
  const Cards cards = FindCards({.nvml = "libc.so.6", .proc = folder_.path()});
  EXPECT_THAT(cards.list, IsEmpty());
  EXPECT_EQ(cards.fault, "");
}

TEST_F(CardsTest, WithoutNvmlTheKernelModuleNamesThem) {
  Write("version",
        "NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.183.01  Sun May 12 19:39:15 UTC 2024\n"
        "GCC version:  gcc version 12.2.0 (Debian 12.2.0-14)\n");
  Write("gpus/0000:65:00.0/information", "Model: \t\t NVIDIA A100-SXM4-80GB\nIRQ:   \t\t 18\n");
  Write("gpus/0000:17:00.0/information", "Model: \t\t NVIDIA L4\nIRQ:   \t\t 17\n");
  const Cards cards = FindCards(KernelModule());
  EXPECT_EQ(cards.driver, "535.183.01");
  ASSERT_THAT(cards.list, SizeIs(2));
  EXPECT_EQ(cards.list[0].name, "NVIDIA L4") << "by their place on the bus";
  EXPECT_EQ(cards.list[0].bus_id, "0000:17:00.0");
  EXPECT_EQ(cards.list[1].name, "NVIDIA A100-SXM4-80GB");
  EXPECT_EQ(cards.list[1].memory_bytes, 0);
}

TEST_F(CardsTest, ADriverThatDoesNotAnswerIsAFaultOfAll) {
  Write("version", "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.65.06  Release\n");
  Write("gpus/0000:17:00.0/information", "Model: \t\t NVIDIA L4\n");
  Set("FAKE_NVML_INIT", "18");
  const Cards cards = FindCards(Nvml());
  EXPECT_EQ(cards.fault, "Driver/library version mismatch");
  EXPECT_EQ(cards.driver, "580.65.06");
  ASSERT_THAT(cards.list, SizeIs(1));
  EXPECT_EQ(cards.list[0].name, "NVIDIA L4");
}

}  // namespace
}  // namespace heddle::machine
