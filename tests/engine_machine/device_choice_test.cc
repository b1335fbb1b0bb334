// Names of devices, and every reason for which a worker cannot have the one that it asks for.
#include "engine/machine/device_choice.h"

#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace heddle::machine {
namespace {

using ::testing::AllOf;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

using Kind = DeviceName::Kind;

constexpr Support kCuda{.cuda = true};
constexpr DeviceName kAuto{.kind = Kind::kAuto};
constexpr DeviceName kCard{.kind = Kind::kCuda, .index = DeviceName::kAnyCard};

DeviceName CardNumber(int index) {
  return {.kind = Kind::kCuda, .index = index};
}

Card Free(int64_t mebibytes) {
  return {.name = "NVIDIA L4",
          .memory_bytes = int64_t{24} << 30,
          .free_bytes = mebibytes << 20,
          .fault = {}};
}

Cards With(std::vector<Card> list) {
  return {.list = std::move(list), .driver = "580.65.06", .fault = {}};
}

std::string Refusal(int index, const Cards& cards, const Support& build = kCuda) {
  const Result<DeviceName> chosen = ChooseDevice(CardNumber(index), cards, build);
  EXPECT_EQ(chosen.status().code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(chosen.status().message(),
              AllOf(HasSubstr("device 'cuda:" + std::to_string(index) + "': "),
                    HasSubstr("; give cpu or auto"), Not(HasSubstr("\n"))));
  return chosen.status().message();
}

TEST(DeviceNameTest, WordsAndTextsAreTheSame) {
  for (const char* const text : {"cpu", "auto", "cuda", "cuda:0", "cuda:15"}) {
    const Result<DeviceName> name = ParseDeviceName(text);
    ASSERT_TRUE(name.ok()) << text;
    EXPECT_EQ(DeviceNameText(*name), text);
  }
  EXPECT_EQ(*ParseDeviceName("cuda:3"), CardNumber(3));
  for (const char* const text : {"", "gpu", "CPU", "cpu ", "cuda:", "cuda:x", "cuda1", "cuda:-1",
                                 "cuda:+1", "cuda:1x", "cuda:99999999999", "cuda: 1"}) {
    const Status status = ParseDeviceName(text).status();
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument) << text;
    EXPECT_THAT(status.message(), HasSubstr("expected cpu, cuda, cuda:N or auto")) << text;
  }
}

TEST(DeviceChoiceTest, ACardThatCanBeUsedIsTaken) {
  const Cards cards = With({Free(20'000), Free(1024)});
  EXPECT_EQ(*ChooseDevice(CardNumber(1), cards, kCuda), CardNumber(1)) << "1 GiB is enough";
  EXPECT_EQ(*ChooseDevice(kAuto, cards, kCuda), CardNumber(0));
  EXPECT_EQ(*ChooseDevice(DeviceName{}, cards, kCuda), DeviceName{})
      << "the processor was asked for";
  Card shared = Free(0);
  shared.memory_bytes = 0;
  EXPECT_EQ(WhyNotCard(With({shared}), 0, kCuda), "") << "what is unknown is no fault";
}

TEST(DeviceChoiceTest, WithoutCardsThereIsNone) {
  EXPECT_THAT(Refusal(0, Cards()), HasSubstr("this machine has no NVIDIA card"));
}

TEST(DeviceChoiceTest, ANumberBeyondTheCardsIsRefused) {
  EXPECT_THAT(Refusal(7, With({Free(20'000)})), HasSubstr("has 1 NVIDIA card, cuda:0"));
  EXPECT_THAT(Refusal(2, With({Free(20'000), Free(20'000)})),
              HasSubstr("has 2 NVIDIA cards, cuda:0 to cuda:1"));
}

TEST(DeviceChoiceTest, ACardWithoutFreeMemoryIsRefused) {
  EXPECT_THAT(Refusal(0, With({Free(1023)})),
              HasSubstr("1.0 GiB of its 24.0 GiB of memory are free"));
  EXPECT_THAT(Refusal(0, With({Free(0)})), HasSubstr("0.0 GiB of its 24.0 GiB"));
}

TEST(DeviceChoiceTest, AnOldDriverIsRefused) {
  Cards cards = With({Free(20'000)});
  cards.driver = "470.256.02";
  EXPECT_THAT(Refusal(0, cards), HasSubstr("its driver 470.256.02 is older than 525"));
  cards.driver = "525.60.13";
  EXPECT_EQ(WhyNotCard(cards, 0, kCuda), "");
  constexpr Support kCuda13{.cuda = true, .cuda_major = 13};
  EXPECT_THAT(Refusal(0, cards, kCuda13), HasSubstr("older than 580, which CUDA 13 needs"));
  cards.driver = "580.65.06";
  EXPECT_EQ(WhyNotCard(cards, 0, kCuda13), "");
}

TEST(DeviceChoiceTest, WhatTheDriverSaysIsPassedOn) {
  Cards cards = With({Free(20'000), Free(20'000)});
  cards.list[1].fault = "GPU is lost";
  EXPECT_THAT(Refusal(1, cards), HasSubstr("GPU is lost"));
  EXPECT_EQ(WhyNotCard(cards, 0, kCuda), "") << "the other is sound";
  cards.fault = "Driver/library version mismatch";
  EXPECT_THAT(Refusal(0, cards), HasSubstr("does not answer: Driver/library version mismatch"));
}

TEST(DeviceChoiceTest, ABuildWithoutCudaUsesNoCard) {
  const Cards cards = With({Free(20'000)});
  EXPECT_THAT(Refusal(0, cards, {.cuda = false}),
              HasSubstr("this build of heddle-engine has no CUDA"));
  EXPECT_EQ(*ChooseDevice(kAuto, cards, {.cuda = false}), DeviceName{});
}

TEST(DeviceChoiceTest, AutoPassesOverWhatCannotBeUsed) {
  Cards cards = With({Free(12), Free(20'000)});
  EXPECT_EQ(*ChooseDevice(kAuto, cards, kCuda), CardNumber(1));
  cards.fault = "Driver/library version mismatch";
  EXPECT_EQ(*ChooseDevice(kAuto, cards, kCuda), DeviceName{});
  EXPECT_EQ(*ChooseDevice(kAuto, Cards(), kCuda), DeviceName{});
}

TEST(DeviceChoiceTest, WorkersThatLeaveTheCardOpenAreSpread) {
  const Cards cards = With({Free(20'000), Free(12), Free(20'000)});
  const auto spread = [&](const std::vector<DeviceName>& asked) {
    std::vector<std::string> names;
    for (const DeviceName& device : SpreadDevices(asked, cards, kCuda)) {
      names.push_back(DeviceNameText(device));
    }
    return names;
  };
  EXPECT_THAT(spread({kAuto, kCard, kAuto, kCard, kAuto}),
              ElementsAre("cuda:0", "cuda:2", "cuda:0", "cuda:2", "cuda:0"));
  EXPECT_THAT(spread({kCard, CardNumber(0), DeviceName{}, kCard}),
              ElementsAre("cuda:2", "cuda:0", "cpu", "cuda:0"))
      << "those that name a card come first";
  EXPECT_THAT(spread({CardNumber(0), CardNumber(0), kAuto, kAuto, kAuto}),
              ElementsAre("cuda:0", "cuda:0", "cuda:2", "cuda:2", "cuda:0"));
  EXPECT_EQ(*ChooseDevice(kCard, cards, kCuda, 1), CardNumber(2)) << "the second of a launcher";
  EXPECT_EQ(*ChooseDevice(kAuto, cards, kCuda, 2), CardNumber(0));
  EXPECT_THAT(SpreadDevices({kAuto, kAuto}, Cards(), kCuda), Each(DeviceName{}));
}

TEST(DeviceChoiceTest, AnyCardIsRefusedWhereNoneCanBeUsed) {
  const auto why = [](const Cards& cards) {
    return ChooseDevice(kCard, cards, kCuda).status().message();
  };
  EXPECT_THAT(why(Cards()), StartsWith("device 'cuda': this machine has no NVIDIA card"));
  EXPECT_THAT(why(With({Free(12)})), StartsWith("device 'cuda': 0.0 GiB of its 24.0 GiB"));
  EXPECT_THAT(why(With({Free(12), Free(12)})),
              StartsWith("device 'cuda': no card can be used, cuda:0 because 0.0 GiB of its"));
}

TEST(DeviceChoiceTest, OnThisMachineTheProcessorIsAlwaysThere) {
  EXPECT_EQ(*ChooseDevice("cpu"), DeviceName{});
  EXPECT_TRUE(ChooseDevice("auto").ok());
  EXPECT_EQ(ChooseDevice("gpu").status().code(), StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace heddle::machine
