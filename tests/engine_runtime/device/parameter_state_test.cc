/// \file
/// Goal: a state is read and written by any boxes, on any device, as a plain array would be; what
/// lies in the host's memory is reached there, and digests and compute copies follow what was
/// written.
#include "engine/runtime/parameter_state.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <numeric>
#include <utility>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/bytes.h"
#include "base/random.h"
#include "engine/graph/models/model.h"
#include "engine/runtime/device/cpu_device.h"
#include "engine/runtime/device/tensor.h"
#include "engine/runtime/parameter_tensors.h"
#include "tests/engine_runtime/training.h"
#include "tests/support/device/fake_device.h"
#include "tests/support/seed.h"

namespace heddle::runtime::testing {
namespace {

using ::testing::IsEmpty;

Box RandomBox(const Shape& shape, Random& random) {
  Box box;
  for (const int64_t size : shape) {
    const int64_t offset = random.Between(0, size - 1);
    box.offset.push_back(offset);
    box.extent.push_back(random.Between(1, size - offset));
  }
  return box;
}

// Calls f(index into a row-major tensor of `shape`) for each element of `box`, in its order.
template <typename F>
void ForEach(const Shape& shape, const Box& box, const F& f) {
  std::vector<int64_t> at(shape.size(), 0);
  for (int64_t n = ElementCount(box.extent); n > 0; --n) {
    int64_t index = 0;
    for (size_t d = 0; d < shape.size(); ++d) {
      index = index * shape[d] + box.offset[d] + at[d];
    }
    f(static_cast<size_t>(index));
    for (size_t d = shape.size(); d-- > 0 && ++at[d] == box.extent[d];) {
      at[d] = 0;
    }
  }
}

std::span<std::byte> AsBytes(std::vector<float>& values) {
  return std::as_writable_bytes(std::span(values));
}

// Compares `state` with plain arrays that are written alike.
class StateTrial {
 public:
  explicit StateTrial(Device& device)
      : graph_(SmallModel(graph::ModelFamily::kLlama, DType::kBF16, 0.0)),
        state_(graph_, device) {
    for (size_t id = 0; id < graph_.parameters.size(); ++id) {
      all_.push_back(static_cast<graph::ParameterId>(id));
    }
    EXPECT_TRUE(state_.Hold(all_).ok());
    for (const graph::ParameterId id : all_) {
      for (const program::StateRole role : program::kStateRoles) {
        arrays_[{id, role}].resize(static_cast<size_t>(ElementCount(graph_.parameter(id).shape)));
      }
    }
  }

  void WriteAndRead(Random& random) {
    const graph::ParameterId id = all_[random.Below(all_.size())];
    const program::StateRole role = program::kStateRoles[random.Below(3)];
    const Shape& shape = graph_.parameter(id).shape;
    std::vector<float>& array = arrays_[{id, role}];
    const Box box = random.Below(4) == 0 ? WholeBox(shape) : RandomBox(shape, random);
    std::vector<float> values(static_cast<size_t>(ElementCount(box.extent)));
    size_t next = 0;
    ForEach(shape, box, [&](size_t index) {
      array[index] = values[next++] = static_cast<float>(random.Below(1000));
    });
    ASSERT_TRUE(state_.Write(id, role, box, AsBytes(values)).ok());
    values.assign(values.size(), -1);  // What was written from is free again.

    const Box other = RandomBox(shape, random);
    std::vector<float> read(static_cast<size_t>(ElementCount(other.extent)));
    ASSERT_TRUE(state_.Read(id, role, other, AsBytes(read)).ok());
    next = 0;
    ForEach(shape, other, [&](size_t index) { EXPECT_EQ(read[next++], array[index]); });
  }

  void CompareAll() {
    for (auto& [key, array] : arrays_) {
      const Box whole = WholeBox(graph_.parameter(key.first).shape);
      std::vector<float> read(array.size());
      ASSERT_TRUE(state_.Read(key.first, key.second, whole, AsBytes(read)).ok());
      EXPECT_EQ(read, array);
    }
  }

  const graph::Graph& graph() const { return graph_; }
  ParameterState& state() { return state_; }
  const std::vector<graph::ParameterId>& all() const { return all_; }

 private:
  const graph::Graph graph_;
  ParameterState state_;
  std::vector<graph::ParameterId> all_;
  std::map<std::pair<graph::ParameterId, program::StateRole>, std::vector<float>> arrays_;
};

std::vector<uint64_t> Digests(StateTrial& trial) {
  std::vector<uint64_t> digests;
  for (const graph::ParameterId id : trial.all()) {
    const auto digest = trial.state().Digest(id, trial.state().BoxOf(id));
    EXPECT_TRUE(digest.ok()) << digest.status().ToString();
    digests.push_back(*digest);
  }
  return digests;
}

TEST(ParameterStateTest, BoxesAreReadAndWrittenAsInPlainArrays) {
  CpuDevice processor;
  FakeDevice fake({.seed = heddle::testing::TestSeed()});
  std::vector<std::vector<uint64_t>> digests;
  for (Device* device : {static_cast<Device*>(&processor), static_cast<Device*>(&fake)}) {
    Random random(heddle::testing::TestSeed());
    StateTrial trial(*device);
    trial.CompareAll();
    for (int i = 0; i < 200; ++i) {
      trial.WriteAndRead(random);
    }
    trial.CompareAll();
    digests.push_back(Digests(trial));
  }
  EXPECT_EQ(digests[0], digests[1]);
  EXPECT_THAT(fake.violations(), IsEmpty());
  EXPECT_EQ(fake.memory_in_use(), 0);
}

TEST(ParameterStateTest, InitialWeightsAreThoseOfTheSeedOnEveryDevice) {
  CpuDevice processor;
  FakeDevice fake({.seed = heddle::testing::TestSeed()});
  StateTrial one(processor);
  StateTrial other(fake);
  ASSERT_TRUE(one.state().Initialize(5).ok());
  ASSERT_TRUE(other.state().Initialize(5).ok());
  EXPECT_EQ(Digests(one), Digests(other));
  ASSERT_TRUE(one.state().Initialize(6).ok());
  EXPECT_NE(Digests(one), Digests(other));
}

TEST(ParameterStateTest, MissingMemoryIsNamed) {
  const graph::Graph graph = SmallModel(graph::ModelFamily::kLlama, DType::kBF16, 0.0);
  FakeDevice small({.memory_bytes = 1 << 16});
  ParameterState state(graph, small);
  const Status held = state.Hold(std::vector<graph::ParameterId>{0, 1, 2, 3, 4, 5});
  EXPECT_EQ(held.code(), StatusCode::kResourceExhausted) << held.ToString();
  EXPECT_THAT(std::string(held.message()), ::testing::HasSubstr("no memory for "));
}

// Where the state fits, and not what is copied to it.
TEST(ParameterStateTest, MissingMemoryForCopiesIsNamed) {
  const graph::Graph graph = SmallModel(graph::ModelFamily::kLlama, DType::kBF16, 0.0);
  std::vector<graph::ParameterId> all(graph.parameters.size());
  std::iota(all.begin(), all.end(), 0);
  int exhausted = 0;
  bool fits = false;
  for (size_t bytes = size_t{1} << 16; !fits; bytes += size_t{1} << 12) {
    FakeDevice small({.memory_bytes = bytes});
    ParameterState state(graph, small);
    if (!state.Hold(all, {}).ok()) {
      continue;
    }
    const Status initialized = state.Initialize(1);
    fits = initialized.ok();
    exhausted += initialized.code() == StatusCode::kResourceExhausted ? 1 : 0;
    EXPECT_TRUE(fits || initialized.code() == StatusCode::kResourceExhausted)
        << initialized.ToString();
  }
  EXPECT_GT(exhausted, 0);
}

// Of two states of one seed, one with boxes of the parameters and one with all of each.
void ExpectPartOf(ParameterState& whole, ParameterState& part, graph::ParameterId id) {
  const Box& box = part.BoxOf(id);
  std::vector<float> expected(static_cast<size_t>(ElementCount(box.extent)));
  std::vector<float> read(expected.size(), -1);
  for (const program::StateRole role : program::kStateRoles) {
    ASSERT_TRUE(whole.Read(id, role, box, AsBytes(expected)).ok());
    ASSERT_TRUE(part.Read(id, role, box, AsBytes(read)).ok());
    EXPECT_EQ(read, expected) << ToString(box);
  }
}

TEST(ParameterStateTest, ABoxIsTheSamePartOfTheParameter) {
  CpuDevice processor;
  FakeDevice fake({.seed = heddle::testing::TestSeed()});
  Random random(heddle::testing::TestSeed());
  for (Device* device : {static_cast<Device*>(&processor), static_cast<Device*>(&fake)}) {
    StateTrial trial(*device);
    ParameterState part(trial.graph(), *device);
    std::map<graph::ParameterId, Box> cut;
    for (size_t i = 0; i < trial.all().size(); i += 2) {  // All of the others.
      const graph::ParameterId id = trial.all()[i];
      cut[id] = RandomBox(trial.graph().parameter(id).shape, random);
    }
    ASSERT_TRUE(part.Hold(trial.all(), {.held = cut}).ok());
    ASSERT_TRUE(part.Initialize(5).ok());
    ASSERT_TRUE(trial.state().Initialize(5).ok());
    for (const graph::ParameterId id : trial.all()) {
      const Shape& shape = trial.graph().parameter(id).shape;
      EXPECT_EQ(part.BoxOf(id), cut.contains(id) ? cut[id] : WholeBox(shape));
      ExpectPartOf(trial.state(), part, id);
      const Box other = RandomBox(part.BoxOf(id).extent, random);
      Box within = other;
      for (size_t d = 0; d < shape.size(); ++d) {
        within.offset[d] += part.BoxOf(id).offset[d];
      }
      std::vector<float> values(static_cast<size_t>(ElementCount(within.extent)), 3);
      for (ParameterState* state : {&part, &trial.state()}) {
        ASSERT_TRUE(state->Write(id, program::StateRole::kMaster, within, AsBytes(values)).ok());
      }
      ExpectPartOf(trial.state(), part, id);
      EXPECT_EQ(
          part.InPlace(id, program::StateRole::kMaster, part.BoxOf(id)).size(),
          device->is_host() ? static_cast<size_t>(ElementCount(part.BoxOf(id).extent)) * 4 : 0);
    }
    ASSERT_TRUE(part.Hold(trial.all(), {.held = cut}).ok());
    ExpectPartOf(trial.state(), part, trial.all().front());
    part.Refresh();
    const auto& held = part.held(trial.all().front()).kept.front();
    EXPECT_EQ(held.compute.sizes(), held.master.sizes());
    ASSERT_TRUE(part.Hold(trial.all()).ok());
    std::vector<float> zeros(1, -1);
    Box first = WholeBox(trial.graph().parameter(trial.all().front()).shape);
    first.extent.assign(first.extent.size(), 1);
    ASSERT_TRUE(
        part.Read(trial.all().front(), program::StateRole::kMaster, first, AsBytes(zeros)).ok());
    EXPECT_EQ(zeros[0], 0) << "another box is another part of the state";
  }
  EXPECT_THAT(fake.violations(), IsEmpty());
}

TEST(ParameterStateTest, OnlyWholeParametersInTheHostsMemoryAreInPlace) {
  CpuDevice processor;
  StateTrial trial(processor);
  const graph::ParameterId id = trial.all().front();
  const Shape& shape = trial.graph().parameter(id).shape;
  const program::StateRole role = program::StateRole::kExpAvg;
  const std::span<std::byte> lies = trial.state().InPlace(id, role, WholeBox(shape));
  ASSERT_EQ(lies.size(), static_cast<size_t>(ElementCount(shape)) * sizeof(float));
  const float seven = 7;
  std::memcpy(lies.data(), &seven, sizeof(seven));
  ASSERT_TRUE(trial.state().Write(id, role, WholeBox(shape), lies).ok());
  std::vector<float> read(static_cast<size_t>(ElementCount(shape)));
  ASSERT_TRUE(trial.state().Read(id, role, WholeBox(shape), AsBytes(read)).ok());
  EXPECT_EQ(read[0], 7);
  Box half = WholeBox(shape);
  half.extent[0] /= 2;
  EXPECT_TRUE(trial.state().InPlace(id, role, half).empty());

  FakeDevice fake({});
  StateTrial away(fake);
  EXPECT_TRUE(away.state().InPlace(id, role, WholeBox(shape)).empty());
}

TEST(ParameterStateTest, ComputeCopiesFollowTheMasters) {
  for (const bool on_fake : {false, true}) {
    std::unique_ptr<Device> device = std::make_unique<CpuDevice>();
    if (on_fake) {
      device = std::make_unique<FakeDevice>(FakeOptions{});
    }
    StateTrial trial(*device);
    Random random(3);
    for (int i = 0; i < 100; ++i) {
      trial.WriteAndRead(random);
    }
    trial.state().Refresh();
    for (const graph::ParameterId id : trial.all()) {
      const auto& held = trial.state().held(id).kept.front();
      const Copied master = device->Download(held.master);
      const Copied compute = device->Download(held.compute);
      ASSERT_TRUE(master.mark.Wait(After(kLongestWait)).ok());
      ASSERT_TRUE(compute.mark.Wait(After(kLongestWait)).ok());
      EXPECT_TRUE(master.tensor.to(compute.tensor.scalar_type()).equal(compute.tensor));
    }
  }
}

}  // namespace
}  // namespace heddle::runtime::testing
