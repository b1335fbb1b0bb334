/// \file
/// The NVIDIA cards of this machine. They are asked of NVML, the driver's own library, by a program
/// of its own (main/main.cc), because the driver's calls may hang: nothing else loads it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/clock.h"

namespace heddle::machine {

/// A part of a card that is divided (MIG), with memory of its own.
struct CardSlice {
  std::string name;  ///< The card's model and the part's profile, "… MIG 3g.40gb".
  int64_t memory_bytes = 0;
  int64_t free_bytes = 0;
  std::string uuid;  ///< "MIG-…", as CUDA_VISIBLE_DEVICES takes it.
};

/// One card.
struct Card {
  std::string name;          ///< The model; empty: unknown.
  int64_t memory_bytes = 0;  ///< 0: unknown.
  int64_t free_bytes = 0;    ///< The part of memory_bytes that no process uses.
  std::string fault;         ///< Why the driver cannot use the card; empty: it can.
  std::string bus_id = {};   ///< Its place on the bus, "0000:65:00.0"; empty: unknown.
  std::string uuid = {};     ///< "GPU-…", by which no other card is called; empty: unknown.
  std::vector<CardSlice> slices = {};  ///< Its parts; none: it is whole.
  /// Nominal rate at which it reads the memory of the machine's other cards, over NVLink or else over
  /// the bus; 0: there is no other card, it cannot read one of them, or the driver does not say.
  int64_t peer_bytes_per_second = 0;
  /// Why RDMA devices may not write to its memory (dma-buf); empty: the driver offers it.
  std::string no_dma_buf = "CUDA was not asked";
};

/// The cards, and their driver.
struct Cards {
  std::vector<Card> list;  ///< By number.
  std::string driver;      ///< Its version, "580.65.06"; empty: unknown, or there is no driver.
  std::string fault;       ///< Why the driver does not answer; empty: it does, or there is none.
};

/// Where the cards are looked for.
struct CardSources {
  std::string nvml = "libnvidia-ml.so.1";  ///< A library, found as dlopen finds it.
  /// CUDA's driver library, which is asked for Card::no_dma_buf; empty: it is not asked. It takes up
  /// to some seconds to start.
  std::string cuda = {};
  std::string proc = "/proc/driver/nvidia";  ///< What the driver's kernel module tells.
  Duration limit = {};       ///< How long they may take; zero: HEDDLE_NVML_TIMEOUT seconds, or 30.
  std::string program = {};  ///< That asks them; empty: heddle-cards, which belongs to this one.
};

/// Returns the cards of NVML, or, where it cannot be loaded or does not answer, those that the
/// kernel module names, without their memory. A card at which NVML hangs has that as its fault.
/// Takes as long as the driver takes to answer, up to a second on an idle machine, and about
/// `limit` at most. Thread: any.
Cards FindCards(const CardSources& sources = {});

}  // namespace heddle::machine
