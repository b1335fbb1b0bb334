/// \file
/// The part of the check of a device about copies beside compute: what products lose to copies of
/// registered memory of the host, such as messages are in. It judges no time: the figures are for
/// people.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include <ATen/ATen.h>
#include <c10/core/InferenceMode.h>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "engine/runtime/device/tensor.h"
#include "tests/engine_runtime/device/check.h"

namespace heddle::runtime::testing {
namespace {

constexpr double kPieceSeconds = 2e-3;  // Of products that are queued at once.

int64_t CopyBytes() {
  return Size(4096, 8 << 20);
}

// Copies each way that may be under way: those of two pieces, so that they never end.
int Slots() {
  return static_cast<int>(Size(4, 32));
}

/// Square matrices in bf16, and their product.
class Products {
 public:
  explicit Products(Device& device) : device_(device), size_(Size(64, 8192)) {
    const at::Tensor index = at::arange(size_ * size_, at::TensorOptions(at::kFloat));
    for (at::Tensor* const factor : {&left_, &right_}) {
      const int64_t stride = factor == &left_ ? 37 : 41;
      const at::Tensor values = (at::remainder(index * stride, 251) - 125) / 64;
      *factor = OnDevice(device, values.to(at::kBFloat16).view({size_, size_}));
    }
    product_ = device.Empty({.dtype = DType::kBF16, .shape = {size_, size_}});
  }

  void Queue(int times) {
    device_.Update([left = left_, right = right_, product = product_, times]() mutable {
      for (int i = 0; i < times; ++i) {
        at::mm_out(product, left, right);
      }
    });
  }
  at::Tensor Product() const { return OnHost(device_, product_); }
  double Flops() const { return 2 * std::pow(static_cast<double>(size_), 3); }

 private:
  Device& device_;
  const int64_t size_;
  at::Tensor left_;
  at::Tensor right_;
  at::Tensor product_;
};

/// Copies both ways between the device and slots in the host's memory.
class Copies {
 public:
  Copies(Device& device, std::span<std::byte> memory) : device_(device) {
    const graph::TensorType type{.dtype = DType::kI32, .shape = {CopyBytes() / 4}};
    const auto bytes = static_cast<size_t>(CopyBytes());
    for (int i = 0; i < Slots(); ++i) {
      const size_t at = 2 * bytes * static_cast<size_t>(i);
      Slot& slot = slots_.emplace_back();
      slot.down_to = HostView(memory.subspan(at, bytes), type).fill_(0);
      slot.up_from = HostView(memory.subspan(at + bytes, bytes), type).fill_(i + 1);
      slot.value = OnDevice(device, slot.up_from.clone());
    }
  }

  /// Bytes that have arrived since the last call: down, up.
  std::pair<int64_t, int64_t> Take() {
    Harvest();
    return {std::exchange(down_, 0), std::exchange(up_, 0)};
  }

  /// Queues at most `each` copies each way, into and from slots that are free.
  void Queue(int each) {
    Harvest();
    for (int i = 0; i < each; ++i, ++next_) {
      Slot& slot = slots_[next_ % slots_.size()];
      if (slot.downs) {
        return;  // The slots behind it were used later.
      }
      slot.down = device_.DownloadInto(slot.value, slot.down_to);
      slot.downs = true;
      if (!slot.ups) {
        slot.uploaded = device_.Upload(slot.up_from);
        slot.ups = true;
      }
    }
  }

  /// Waits for all, and compares what has arrived.
  void ExpectWhole() {
    ASSERT_TRUE(device_.Drain(After(kPatience)).ok());
    Harvest();
    for (Slot& slot : slots_) {
      EXPECT_TRUE(at::equal(slot.down_to, slot.up_from));
      const Copied up = device_.Upload(slot.up_from);
      device_.Await(up.mark);
      EXPECT_TRUE(at::equal(OnHost(device_, up.tensor), slot.up_from));
    }
  }

 private:
  struct Slot {
    at::Tensor value;  ///< On the device.
    at::Tensor down_to;
    at::Tensor up_from;
    Mark down;
    Copied uploaded;
    bool downs = false;  ///< Its copy down is under way, and
    bool ups = false;    ///< its copy up.
  };

  void Harvest() {
    for (Slot& slot : slots_) {
      if (slot.downs && slot.down.Ended()) {
        slot.downs = false;
        down_ += CopyBytes();
      }
      if (slot.ups && slot.uploaded.mark.Ended()) {
        slot.ups = false;
        slot.uploaded = {};
        up_ += CopyBytes();
      }
    }
  }

  Device& device_;
  std::vector<Slot> slots_;
  size_t next_ = 0;
  int64_t down_ = 0;
  int64_t up_ = 0;
};

double SecondsSince(Time begun) {
  return std::max(Seconds(Now() - begun), 1e-9);
}

struct Shape {
  int pieces = 0;
  int products = 0;  ///< Of a piece.
  int copies = 0;    ///< Each way, beside a piece.
};

struct Ran {
  double seconds = 0;
  double down_rate = 0;  ///< Bytes a second that arrived meanwhile.
  double up_rate = 0;
};

/// Queues pieces, one ahead of the device, with copies beside them unless `copies` is null.
Ran RunPieces(Device& device, Products& products, const Shape& shape, Copies* copies) {
  EXPECT_TRUE(device.Drain(After(kPatience)).ok());
  if (copies != nullptr) {
    copies->Take();
  }
  const Time begun = Now();
  Mark before;
  for (int i = 0; i < shape.pieces; ++i) {
    if (copies != nullptr) {
      copies->Queue(shape.copies);  // Those down begin when the piece has ended that runs now.
    }
    products.Queue(shape.products);
    const Mark queued = device.Computed();
    EXPECT_TRUE(before.Wait(After(kPatience)).ok());
    before = queued;
  }
  EXPECT_TRUE(before.Wait(After(kPatience)).ok());
  Ran ran{.seconds = SecondsSince(begun)};
  if (copies != nullptr) {
    const auto [down, up] = copies->Take();
    ran.down_rate = static_cast<double>(down) / ran.seconds;
    ran.up_rate = static_cast<double>(up) / ran.seconds;
  }
  return ran;
}

/// Pieces of kPieceSeconds, and copies that take as long as a piece at least.
Shape ShapeFor(Device& device, Products& products, Copies& copies) {
  const int few = static_cast<int>(Size(2, 20));
  const int most = static_cast<int>(Size(4, 1000));
  RunPieces(device, products, {.pieces = few, .products = 1}, nullptr);
  const double product =
      RunPieces(device, products, {.pieces = few, .products = 1}, nullptr).seconds / few;
  const int a_piece = std::clamp(static_cast<int>(std::lround(kPieceSeconds / product)), 1, most);
  double copy = 0;
  for (int i = 0; i < 2; ++i) {
    const Time begun = Now();
    copies.Queue(Slots());
    EXPECT_TRUE(device.Drain(After(kPatience)).ok());
    copy = SecondsSince(begun) / Slots();
  }
  const double piece = product * a_piece;
  return {.pieces = static_cast<int>(Size(4, 200)),
          .products = a_piece,
          .copies = static_cast<int>(std::clamp(piece / copy + 1, 1.0, Slots() / 2.0))};
}

TEST(DeviceCheckBeside, ProductsWithCopiesAgainstProductsAlone) {
  constexpr int kRounds = 5;
  const c10::InferenceMode inference;
  auto device = OpenChecked();
  ASSERT_TRUE(device.ok()) << device.status().ToString();
  const auto slab = SharedSlab::Create(static_cast<size_t>(2 * Slots() * CopyBytes()));
  ASSERT_TRUE(slab.ok()) << slab.status().ToString();
  auto registration = (*device)->RegisterHost((*slab)->bytes());
  ASSERT_TRUE(registration.ok()) << registration.status().ToString();
  Products products(**device);
  Copies copies(**device, (*slab)->bytes());
  const Shape shape = ShapeFor(**device, products, copies);
  const at::Tensor expected = products.Product();
  std::vector<double> alone;
  std::vector<double> beside;
  std::vector<double> down;
  std::vector<double> up;
  for (int round = 0; round < kRounds; ++round) {
    alone.push_back(RunPieces(**device, products, shape, nullptr).seconds);
    const Ran ran = RunPieces(**device, products, shape, &copies);
    beside.push_back(ran.seconds);
    down.push_back(ran.down_rate);
    up.push_back(ran.up_rate);
    EXPECT_TRUE(at::equal(products.Product(), expected));
  }
  copies.ExpectWhole();
  const double cost = Median(beside) / Median(alone) - 1;
  const double flops = shape.pieces * shape.products * products.Flops() / Median(alone);
  Note("beside", {{"alone_seconds", alone},
                  {"beside_seconds", beside},
                  {"copies_cost", cost},
                  {"down_bytes_per_second", Median(down)},
                  {"up_bytes_per_second", Median(up)},
                  {"flops_per_second", flops},
                  {"registered", *registration != nullptr},
                  {"products_a_piece", shape.products},
                  {"copies_a_piece", shape.copies}});
  Say(fmt::format(
      "copies of {:.1f} GB/s down and {:.1f} GB/s up cost products {:.4f} of their time "
      "(goal 0.02)",
      Median(down) / 1e9, Median(up) / 1e9, cost));
}

}  // namespace
}  // namespace heddle::runtime::testing
