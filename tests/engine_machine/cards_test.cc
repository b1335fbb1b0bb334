// Cards as a library in the place of NVML (tests/support/nvml) and the kernel module tell of them.
#include "engine/machine/cards.h"

#include <cerrno>
#include <cstdlib>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "base/system/file.h"

namespace heddle::machine {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;
using ::testing::StartsWith;

void Set(const char* name, const char* value) {
  ::setenv(name, value, 1);  // NOLINT(concurrency-mt-unsafe): the test has one thread.
}

class CardsTest : public ::testing::Test {
 protected:
  void SetUp() override {
    Set("FAKE_NVML_INIT", "0");
    Set("FAKE_NVML_HANG", "");
    Set("FAKE_NVML_DRIVER", "580.65.06");
    Set("FAKE_NVML_CARDS", "");
    Set("FAKE_NVML_PEERS", "");
    Set("FAKE_CUDA_INIT", "0");
    Set("FAKE_CUDA_CARDS", "");
  }

  CardSources Nvml(Duration limit = {}) const {
    return {.nvml = HEDDLE_FAKE_NVML, .proc = folder_.path(), .limit = limit};
  }
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
  EXPECT_EQ(cards.list[0].uuid, "GPU-1");
  EXPECT_EQ(cards.list[1].name, "NVIDIA GB10");
  EXPECT_EQ(cards.list[1].memory_bytes, 0);
  EXPECT_EQ(cards.list[1].fault, "");
  EXPECT_EQ(cards.list[2].fault, "GPU is lost");
  EXPECT_EQ(cards.list[3].free_bytes, int64_t{12} << 20) << "a lost card hides no other";
  EXPECT_EQ(cards.list[3].bus_id, "00000000:04:00.0");
}

TEST_F(CardsTest, ThePartsOfACardAreToldApart) {
  Set("FAKE_NVML_CARDS",
      "NVIDIA L4,23034,22500;"
      "NVIDIA H100,81559,81000|NVIDIA H100 MIG 3g.40gb,40448,40000|NVIDIA H100 MIG "
      "1g.10gb,9984,12");
  const Cards cards = FindCards(Nvml());
  ASSERT_THAT(cards.list, SizeIs(2));
  EXPECT_THAT(cards.list[0].slices, IsEmpty());
  ASSERT_THAT(cards.list[1].slices, SizeIs(2));
  EXPECT_EQ(cards.list[1].uuid, "GPU-2");
  EXPECT_EQ(cards.list[1].slices[0].name, "NVIDIA H100 MIG 3g.40gb");
  EXPECT_EQ(cards.list[1].slices[0].memory_bytes, int64_t{40448} << 20);
  EXPECT_EQ(cards.list[1].slices[1].free_bytes, int64_t{12} << 20);
  EXPECT_EQ(cards.list[1].slices[0].uuid, "MIG-102");
  EXPECT_EQ(cards.list[1].slices[1].uuid, "MIG-202");
}

TEST_F(CardsTest, ACardReadsTheOthersAsFastAsItsLinks) {
  Set("FAKE_NVML_CARDS", "H100,9,9;H100,9,9;L4,9,9");
  Set("FAKE_NVML_PEERS", "nvlink 18 6;nvlink 18 99;bus 4 16");
  const Cards cards = FindCards(Nvml());
  ASSERT_THAT(cards.list, SizeIs(3));
  EXPECT_EQ(cards.list[0].peer_bytes_per_second, 450'000'000'000);
  EXPECT_EQ(cards.list[1].peer_bytes_per_second, 1'800'000'000'000) << "newer than is known";
  EXPECT_EQ(cards.list[2].peer_bytes_per_second, 31'504'000'000);
  Set("FAKE_NVML_PEERS", "nvlink 18 6;nvlink 18 6");
  for (const Card& card : FindCards(Nvml()).list) {
    EXPECT_EQ(card.peer_bytes_per_second, 0) << "one of the others cannot be read";
  }
  Set("FAKE_NVML_CARDS", "H100,9,9");
  EXPECT_EQ(FindCards(Nvml()).list.at(0).peer_bytes_per_second, 0) << "there is no other card";
}

TEST_F(CardsTest, CudaTellsWhetherRdmaDevicesMayWriteToACard) {
  Set("FAKE_NVML_CARDS", "a,9,9;b,9,9;c,9,9;d,9,9;e,9,9;f,9,9");
  // Exported, ordered for, flushed by. A card that exports needs one of the other two.
  Set("FAKE_CUDA_CARDS", "1,100,0;1,0,1;1,0,2;0,200,1;1,200,3");
  CardSources sources = Nvml();
  EXPECT_EQ(FindCards(sources).list.at(0).no_dma_buf, "CUDA was not asked");
  sources.cuda = HEDDLE_FAKE_NVML;
  const Cards cards = FindCards(sources);
  ASSERT_THAT(cards.list, SizeIs(6));
  EXPECT_EQ(cards.list[0].no_dma_buf, "");
  EXPECT_EQ(cards.list[1].no_dma_buf, "");
  EXPECT_THAT(cards.list[2].no_dma_buf, HasSubstr("what was there before"));
  EXPECT_THAT(cards.list[3].no_dma_buf, HasSubstr("does not export"));
  EXPECT_EQ(cards.list[4].no_dma_buf, "");
  EXPECT_EQ(cards.list[5].no_dma_buf, "CUDA does not show the card");

  Set("FAKE_CUDA_INIT", "100");
  EXPECT_EQ(FindCards(sources).list.at(0).no_dma_buf, "CUDA does not start: error 100");
  sources.cuda = "libc.so.6";
  EXPECT_EQ(FindCards(sources).list.at(0).no_dma_buf, "libc.so.6 is missing");
}

TEST_F(CardsTest, CudaThatHangsHidesNoCard) {
  Set("FAKE_NVML_CARDS", "NVIDIA L4,23034,22500");
  Set("FAKE_CUDA_INIT", "hang");
  CardSources sources = Nvml(std::chrono::seconds(4));
  sources.cuda = HEDDLE_FAKE_NVML;
  const Cards cards = FindCards(sources);
  EXPECT_EQ(cards.fault, "");
  ASSERT_THAT(cards.list, SizeIs(1));
  EXPECT_EQ(cards.list[0].fault, "");
  EXPECT_EQ(cards.list[0].no_dma_buf, "CUDA did not answer");
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

// The limit is short, because all of it passes.
constexpr Duration kShort = std::chrono::milliseconds(300);

TEST_F(CardsTest, ADriverThatHangsIsAFaultOfAll) {
  Write("version", "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.65.06  Release\n");
  Set("FAKE_NVML_CARDS", "NVIDIA L4,23034,22500");
  for (const char* const call : {"load", "init"}) {
    Set("FAKE_NVML_HANG", call);
    const Cards cards = FindCards(Nvml(kShort));
    EXPECT_THAT(cards.fault, HasSubstr("libnvidia-ml.so.1 within 0.3 s; see whether")) << call;
    EXPECT_EQ(cards.driver, "580.65.06") << "the kernel module's";
    EXPECT_THAT(cards.list, IsEmpty()) << call;
  }
}

TEST_F(CardsTest, ACardAtWhichTheDriverHangsHidesNoneBeforeIt) {
  Set("FAKE_NVML_CARDS", "NVIDIA L4,23034,22500;NVIDIA L4,23034,22500;NVIDIA L4,23034,22500");
  Set("FAKE_NVML_HANG", "1");
  const Cards cards = FindCards(Nvml(std::chrono::seconds(4)));
  EXPECT_EQ(cards.fault, "");
  ASSERT_THAT(cards.list, SizeIs(3));
  EXPECT_EQ(cards.list[0].fault, "");
  EXPECT_EQ(cards.list[0].memory_bytes, int64_t{23034} << 20);
  EXPECT_THAT(cards.list[1].fault, StartsWith("it does not answer: nothing came from "));
  EXPECT_THAT(cards.list[2].fault, StartsWith("it was not asked"));
}

TEST_F(CardsTest, ADriverThatEndsItsProcessIsAFault) {
  Set("FAKE_NVML_INIT", "crash");
  EXPECT_THAT(FindCards(Nvml()).fault, HasSubstr("ended the program that asked it (signal 6)"));
}

// A program in the place of heddle-cards, which writes these lines.
class AnswersTest : public CardsTest {
 protected:
  Cards FindAfter(const std::string& lines, const std::string& end = "exit 0") {
    const std::string path = folder_.path() + "/answers";
    Write("answers", "#!/bin/sh\nprintf '" + lines + "'\n" + end + "\n");
    EXPECT_EQ(::chmod(path.c_str(), 0700), 0);
    return FindCards({.proc = folder_.path(), .program = path});
  }
};

constexpr const char* kCard = "card\\tL4\\t1000\\t900\\t01\\tGPU-1\\t\\n";

TEST_F(AnswersTest, AreTakenWhole) {
  const Cards cards = FindAfter("driver\\t580.1\\ncount\\t1\\n" + std::string(kCard) + "end\\n");
  EXPECT_EQ(cards.fault, "");
  ASSERT_THAT(cards.list, SizeIs(1));
  EXPECT_EQ(cards.list[0].memory_bytes, 1000);
}

TEST_F(AnswersTest, OfAnotherProgramAreAFault) {
  const std::string card = kCard;
  for (const std::string& lines :
       {std::string("count\\t-1\\nend\\n"), std::string("count\\t4097\\nend\\n"),
        std::string("count\\t99999999999999999999\\nend\\n"), std::string("count\\tmany\\n"),
        "count\\t2\\n" + card + "end\\n", "count\\t1\\n" + card + card + "end\\n", card + "end\\n",
        std::string("count\\t1\\ncard\\tL4\\tmuch\\t9\\t01\\tGPU-1\\t\\nend\\n"),
        std::string("count\\t1\\ncard\\tL4\\t9\\t-9\\t01\\tGPU-1\\t\\nend\\n"),
        std::string("count\\t1\\npart\\tMIG\\t9\\t9\\tMIG-1\\nend\\n"), std::string("end\\n"),
        std::string("count\\t0\\nend\\ndma_buf\\t0\\t\\n"), std::string("hello\\n")}) {
    const Cards cards = FindAfter(lines);
    EXPECT_THAT(cards.fault, HasSubstr("which is not understood")) << lines;
    EXPECT_THAT(cards.list, IsEmpty()) << lines;
  }
}

TEST_F(AnswersTest, ThatEndInALineAreNotBelieved) {
  const Cards cards = FindAfter("count\\t1\\ncard\\tL4\\t10", "kill -9 $$");
  EXPECT_EQ(cards.fault, "");
  ASSERT_THAT(cards.list, SizeIs(1));
  EXPECT_THAT(cards.list[0].fault, HasSubstr("(signal 9)"));
}

TEST_F(CardsTest, NoProcessIsLeftBehind) {
  Set("FAKE_NVML_HANG", "init");
  FindCards(Nvml(kShort));
  EXPECT_EQ(::waitpid(-1, nullptr, WNOHANG), -1) << "no child, alive or ended";
  EXPECT_EQ(errno, ECHILD);
}

}  // namespace
}  // namespace heddle::machine
