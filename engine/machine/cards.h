/// \file
/// The NVIDIA cards of this machine. They are asked of NVML, the driver's own library, which is
/// loaded where it is there: no program of Heddle is linked with it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace heddle::machine {

/// One card.
struct Card {
  std::string name;          ///< The model; empty: unknown.
  int64_t memory_bytes = 0;  ///< 0: unknown.
  int64_t free_bytes = 0;    ///< The part of memory_bytes that no process uses.
  std::string fault;         ///< Why the driver cannot use the card; empty: it can.
  std::string bus_id = {};   ///< Its place on the bus, "0000:65:00.0"; empty: unknown.
};

/// The cards, and their driver.
struct Cards {
  std::vector<Card> list;  ///< By number.
  std::string driver;      ///< Its version, "580.65.06"; empty: unknown, or there is no driver.
  std::string fault;       ///< Why the driver does not answer; empty: it does, or there is none.
};

/// Where the cards are looked for.
struct CardSources {
  std::string nvml = "libnvidia-ml.so.1";    ///< A library, found as dlopen finds it.
  std::string proc = "/proc/driver/nvidia";  ///< What the driver's kernel module tells.
};

/// Returns the cards of NVML, or, where it cannot be loaded or does not answer, those that the
/// kernel module names, without their memory. Takes as long as the driver takes to answer, up to a
/// second on an idle machine. Thread: any.
Cards FindCards(const CardSources& sources = {});

}  // namespace heddle::machine
