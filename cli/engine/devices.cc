#include <cstdio>

#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include <unistd.h>

#include "base/thread.h"
#include "cli/engine/engine.h"
#include "cli/engine_commands.h"
#include "engine/job/job.h"
#include "engine/machine/device_choice.h"
#include "engine/runtime/device/arithmetic.h"

namespace heddle::cli {
namespace {

std::string GiB(int64_t bytes) {
  return bytes == 0
             ? "-"
             : fmt::format("{:.1f} GiB", static_cast<double>(bytes) / static_cast<double>(1 << 30));
}

std::string PeersOf(const machine::Card& card) {
  return card.peer_bytes_per_second == 0
             ? ""
             : fmt::format("reads the other cards at {:.0f} GB/s; ",
                           static_cast<double>(card.peer_bytes_per_second) / 1e9);
}

/// What the machine has, and what its names mean.
struct Inventory {
  runtime::Arithmetic arithmetic = runtime::CpuArithmetic();
  int64_t memory_bytes = int64_t{::sysconf(_SC_PHYS_PAGES)} * ::sysconf(_SC_PAGESIZE);
  machine::Cards cards = machine::FindCards({.cuda = "libcuda.so.1"});

  std::string WhyNot(size_t card) const {
    return machine::WhyNotCard(cards, static_cast<int>(card), machine::kThisBuild);
  }
  /// What `device: auto` means here.
  std::string Automatic() const {
    const auto chosen = machine::ChooseDevice({.kind = machine::DeviceName::Kind::kAuto}, cards,
                                              machine::kThisBuild);
    return machine::DeviceNameText(*chosen);
  }
};

class Devices : public Command {
 public:
  std::string name() const override { return std::string(kDevicesCommand.name); }
  std::string summary() const override { return std::string(kDevicesCommand.summary); }
  std::string examples() const override {
    return "Examples:\n  heddle devices\n  heddle devices --json";
  }
  void Declare(Arguments& arguments) override {
    arguments.Flag("json", &json_, "One JSON object on standard output");
  }
  int Run() override {
    const Inventory inventory;
    json_ ? PrintJson(inventory) : PrintText(inventory);
    return kDone;
  }

 private:
  static void PrintText(const Inventory& inventory) {
    const std::string automatic = inventory.Automatic();
    const auto row = [&](const std::string& device, const std::string& what,
                         const std::string& memory, const std::string& why) {
      std::printf("%-2s%-8s %-34s %10s  %s\n", device == automatic ? "*" : "", device.c_str(),
                  what.c_str(), memory.c_str(), why.c_str());
    };
    std::printf("  %-8s %-34s %10s  %s\n", "DEVICE", "WHAT", "MEMORY", "USE");
    row("cpu", inventory.arithmetic.at("processor"), GiB(inventory.memory_bytes),
        fmt::format("{} cores, {} of them by a worker whose job has no `threads`; {}", Cores(),
                    job::JobConfig().threads, inventory.arithmetic.at("instructions")));
    for (size_t i = 0; i < inventory.cards.list.size(); ++i) {
      const machine::Card& card = inventory.cards.list[i];
      const std::string why = inventory.WhyNot(i);
      row(fmt::format("cuda:{}", i), card.name, GiB(card.memory_bytes),
          why.empty()
              ? fmt::format("{} free; {}{}", GiB(card.free_bytes), PeersOf(card),
                            card.no_dma_buf.empty() ? "dma-buf" : "no dma-buf: " + card.no_dma_buf)
              : "none: " + why);
      for (const machine::CardSlice& slice : card.slices) {
        row("  part", slice.name, GiB(slice.memory_bytes),
            fmt::format("{} free; by CUDA_VISIBLE_DEVICES={}", GiB(slice.free_bytes), slice.uuid));
      }
    }
    if (inventory.cards.list.empty()) {
      std::printf("no card: %s\n", inventory.WhyNot(0).c_str());
    }
    if (!inventory.cards.driver.empty()) {
      std::printf("NVIDIA driver %s\n", inventory.cards.driver.c_str());
    }
    std::printf("* is what `device: auto` takes.\n");
  }

  static void PrintJson(const Inventory& inventory) {
    nlohmann::ordered_json cards = nlohmann::ordered_json::array();
    for (size_t i = 0; i < inventory.cards.list.size(); ++i) {
      const machine::Card& card = inventory.cards.list[i];
      const std::string why = inventory.WhyNot(i);
      nlohmann::ordered_json parts = nlohmann::ordered_json::array();
      for (const machine::CardSlice& slice : card.slices) {
        parts.push_back({{"name", slice.name},
                         {"uuid", slice.uuid},
                         {"memory_bytes", slice.memory_bytes},
                         {"free_bytes", slice.free_bytes}});
      }
      cards.push_back({{"device", fmt::format("cuda:{}", i)},
                       {"name", card.name},
                       {"uuid", card.uuid},
                       {"memory_bytes", card.memory_bytes},
                       {"free_bytes", card.free_bytes},
                       {"usable", why.empty()},
                       {"reason", why},
                       {"peer_bytes_per_second", card.peer_bytes_per_second},
                       {"dma_buf", card.no_dma_buf.empty()},
                       {"dma_buf_reason", card.no_dma_buf},
                       {"parts", std::move(parts)}});
    }
    const nlohmann::ordered_json json = {
        {"processor",
         {{"device", "cpu"},
          {"name", inventory.arithmetic.at("processor")},
          {"memory_bytes", inventory.memory_bytes},
          {"cores", Cores()},
          {"threads", job::JobConfig().threads},
          {"instructions", inventory.arithmetic.at("instructions")}}},
        {"cards", std::move(cards)},
        {"cards_reason", inventory.cards.list.empty() ? inventory.WhyNot(0) : ""},
        {"driver", inventory.cards.driver},
        {"auto", inventory.Automatic()}};
    // A driver may give names that are no UTF-8.
    std::printf("%s\n", json.dump(2, ' ', false, nlohmann::json::error_handler_t::replace).c_str());
  }

  bool json_ = false;
};

}  // namespace

std::unique_ptr<Command> MakeDevices() {
  return std::make_unique<Devices>();
}

}  // namespace heddle::cli
