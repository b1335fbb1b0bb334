// heddle-cards NVML [CUDA]: asks NVML, the NVIDIA driver's own library, for the machine's cards, and
// then CUDA's driver library, if it is named, whether RDMA devices may write to their memory. It is
// a program of its own because calls of the driver may hang or crash and cannot be interrupted: who
// asks (engine/machine/cards.cc) waits for a while and then kills it.
//
// Standard output has a line for each fact, as soon as it is known, with a tab between words:
//   none | fault TEXT                            there is no such library | it does not work
//   driver VERSION, then count NUMBER
//   card NAME BYTES FREE_BYTES BUS_ID UUID FAULT for each card, by number
//   part NAME BYTES FREE_BYTES UUID              for each part of the card before it (MIG)
//   end                                          nothing is missing of the cards
//   peers NUMBER BYTES_PER_SECOND                for each card that reads the memory of all others
//   dma_buf NUMBER WHY_NOT                       for each card, if CUDA's library is named
#include <algorithm>
#include <array>
#include <csignal>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <initializer_list>
#include <string>
#include <vector>

#include <dlfcn.h>
#include <sys/prctl.h>
#include <unistd.h>

namespace {

std::string LineOf(std::initializer_list<std::string> words) {
  std::string line;
  for (const std::string& word : words) {
    line += line.empty() ? "" : "\t";
    for (const char c : word) {
      line += c == '\t' || c == '\n' ? ' ' : c;
    }
  }
  return line + '\n';
}

void Write(const std::string& line) {
  if (::write(STDOUT_FILENO, line.data(), line.size()) < 0) {
    std::_Exit(1);  // Nobody reads it.
  }
}

void Say(std::initializer_list<std::string> words) {
  Write(LineOf(words));
}

/// Functions of a library that may be missing.
class Library {
 public:
  explicit Library(const char* path) : library_(::dlopen(path, RTLD_NOW | RTLD_LOCAL)) {}

 protected:
  template <typename Function>
  void Bind(const char* name, Function& function) {
    function = library_ == nullptr ? nullptr : reinterpret_cast<Function>(::dlsym(library_, name));
    complete_ = complete_ && function != nullptr;
  }

  bool complete_ = true;  ///< All functions are there.

 private:
  void* library_;
};

/// The part of NVML that tells of each card, with the types of its header nvml.h.
class Nvml : private Library {
 public:
  explicit Nvml(const char* path) : Library(path) {
    Bind("nvmlInit_v2", init_);
    Bind("nvmlErrorString", error_);
    Bind("nvmlSystemGetDriverVersion", driver_);
    Bind("nvmlDeviceGetCount_v2", count_);
    Bind("nvmlDeviceGetHandleByIndex_v2", handle_);
    Bind("nvmlDeviceGetName", name_);
    Bind("nvmlDeviceGetMemoryInfo", memory_);
    Bind("nvmlDeviceGetPciInfo_v3", pci_);
    Bind("nvmlDeviceGetUUID", uuid_);
    const bool complete = complete_;  // Old drivers have no parts.
    Bind("nvmlDeviceGetMigMode", mig_mode_);
    Bind("nvmlDeviceGetMaxMigDeviceCount", mig_count_);
    Bind("nvmlDeviceGetMigDeviceHandleByIndex", mig_handle_);
    has_parts_ = complete_;
    complete_ = complete;
  }

  bool loaded() const { return complete_; }

  /// Returns the cards' places on the bus, by number.
  std::vector<std::string> Tell() const {
    if (const int code = init_(); code != kSuccess) {
      Say({"fault", error_(code)});
      return {};
    }
    Text version{};
    if (driver_(version.data(), kTextBytes) == kSuccess) {
      Say({"driver", version.data()});
    }
    unsigned int count = 0;
    if (const int code = count_(&count); code != kSuccess) {
      Say({"fault", error_(code)});
      return {};
    }
    Say({"count", std::to_string(count)});
    std::vector<std::string> places;
    for (unsigned int i = 0; i < count; ++i) {
      places.push_back(TellCard(i));
    }
    Say({"end"});
    return places;
  }

 private:
  static constexpr int kSuccess = 0;
  static constexpr int kNotSupported = 3;  ///< Of memory that a card shares with the processor.
  static constexpr unsigned int kTextBytes = 96;  ///< As long as NVML asks for at most.
  using Handle = void*;
  using Text = std::array<char, kTextBytes>;
  struct Memory {
    unsigned long long total, free, used;  // NOLINT(google-runtime-int): as NVML has it
  };
  struct Pci {
    std::array<char, 16> legacy_id;
    unsigned int domain, bus, device, device_id, subsystem_id;
    std::array<char, 32> id;
  };

  std::string TellCard(unsigned int index) const {
    Handle handle = nullptr;
    Text name{};
    Text uuid{};
    Memory memory{};
    Pci pci{};
    int code = handle_(index, &handle);
    if (code == kSuccess) {
      code = name_(handle, name.data(), kTextBytes);
    }
    if (code == kSuccess) {
      code = memory_(handle, &memory);
    }
    if (handle != nullptr && pci_(handle, &pci) != kSuccess) {
      pci = {};
    }
    if (handle != nullptr && uuid_(handle, uuid.data(), kTextBytes) != kSuccess) {
      uuid = {};
    }
    // Known before the card is told of: if NVML hangs here, it is this card that does not answer.
    const std::vector<std::string> parts = PartsOf(handle);
    std::string place(pci.id.data(), ::strnlen(pci.id.data(), pci.id.size()));
    Say({"card", name.data(), std::to_string(memory.total), std::to_string(memory.free), place,
         uuid.data(), code == kSuccess || code == kNotSupported ? "" : error_(code)});
    for (const std::string& part : parts) {
      Write(part);
    }
    return place;
  }

  std::vector<std::string> PartsOf(Handle card) const {
    std::vector<std::string> lines;
    unsigned int on = 0;
    unsigned int pending = 0;
    unsigned int count = 0;
    if (!has_parts_ || card == nullptr || mig_mode_(card, &on, &pending) != kSuccess || on == 0 ||
        mig_count_(card, &count) != kSuccess) {
      return lines;
    }
    for (unsigned int i = 0; i < count; ++i) {
      Handle part = nullptr;
      Text name{};
      Text uuid{};
      Memory memory{};
      if (mig_handle_(card, i, &part) == kSuccess &&  // Numbers of parts that were not made fail.
          name_(part, name.data(), kTextBytes) == kSuccess && memory_(part, &memory) == kSuccess &&
          uuid_(part, uuid.data(), kTextBytes) == kSuccess) {
        lines.push_back(LineOf({"part", name.data(), std::to_string(memory.total),
                                std::to_string(memory.free), uuid.data()}));
      }
    }
    return lines;
  }

  bool has_parts_ = false;
  int (*init_)() = nullptr;
  const char* (*error_)(int) = nullptr;
  int (*driver_)(char*, unsigned int) = nullptr;
  int (*count_)(unsigned int*) = nullptr;
  int (*handle_)(unsigned int, Handle*) = nullptr;
  int (*name_)(Handle, char*, unsigned int) = nullptr;
  int (*memory_)(Handle, Memory*) = nullptr;
  int (*pci_)(Handle, Pci*) = nullptr;
  int (*uuid_)(Handle, char*, unsigned int) = nullptr;
  int (*mig_mode_)(Handle, unsigned int*, unsigned int*) = nullptr;
  int (*mig_count_)(Handle, unsigned int*) = nullptr;
  int (*mig_handle_)(Handle, unsigned int, Handle*) = nullptr;
};

/// The part of NVML that tells which cards read each other's memory. Old drivers lack it.
class PeerLinks : private Library {
 public:
  explicit PeerLinks(const char* path) : Library(path) {
    Bind("nvmlDeviceGetHandleByIndex_v2", handle_);
    Bind("nvmlDeviceGetP2PStatus", peers_);
    Bind("nvmlDeviceGetNvLinkState", nvlink_);
    Bind("nvmlDeviceGetNvLinkVersion", nvlink_version_);
    Bind("nvmlDeviceGetMaxPcieLinkGeneration", bus_generation_);
    Bind("nvmlDeviceGetMaxPcieLinkWidth", bus_width_);
  }

  /// Tells of each of the `count` cards that reads the memory of all others, and how fast. NVML has
  /// been initialised.
  void Tell(unsigned int count) const {
    for (unsigned int i = 0; complete_ && i < count; ++i) {
      if (ReadsAll(i, count)) {
        Say({"peers", std::to_string(i), std::to_string(PeerRate(i))});
      }
    }
  }

 private:
  static constexpr int kSuccess = 0;
  static constexpr int kRead = 0;  ///< NVML_P2P_CAPS_INDEX_READ; the answer 0: it can.
  static constexpr unsigned int kMostLinks = 36;  ///< NVML_NVLINK_MAX_LINKS.
  using Handle = void*;

  bool ReadsAll(unsigned int index, unsigned int count) const {
    Handle own = nullptr;
    bool reads = count > 1 && handle_(index, &own) == kSuccess;
    for (unsigned int i = 0; reads && i < count; ++i) {
      Handle other = nullptr;
      int status = 0;
      reads = i == index || (handle_(i, &other) == kSuccess &&
                             peers_(own, other, kRead, &status) == kSuccess && status == 0);
    }
    return reads;
  }

  /// Bytes a second in one direction over all of the card's NVLinks, else over its bus.
  uint64_t PeerRate(unsigned int index) const {
    // By NVML_NVLINK_VERSION_…, of a link in NVIDIA's data sheets of the cards that have it.
    constexpr std::array<uint64_t, 9> kLinkRates = {0, 20, 25, 25, 25, 25, 25, 50, 100};
    // By generation, of a lane behind its encoding, in MB/s.
    constexpr std::array<uint64_t, 7> kLaneRates = {0, 250, 500, 985, 1969, 3938, 7563};
    constexpr uint64_t kMega = 1'000'000;
    Handle card = nullptr;
    if (handle_(index, &card) != kSuccess) {
      return 0;
    }
    uint64_t links = 0;
    for (unsigned int link = 0; link < kMostLinks; ++link) {
      unsigned int on = 0;
      unsigned int version = 0;
      if (nvlink_(card, link, &on) == kSuccess && on != 0 &&
          nvlink_version_(card, link, &version) == kSuccess) {
        links += kLinkRates.at(std::min<size_t>(version, kLinkRates.size() - 1)) * 1000 * kMega;
      }
    }
    unsigned int generation = 0;
    unsigned int lanes = 0;
    const bool has_bus =
        bus_generation_(card, &generation) == kSuccess && bus_width_(card, &lanes) == kSuccess;
    const uint64_t lane = kLaneRates.at(std::min<size_t>(generation, kLaneRates.size() - 1));
    return links > 0 ? links : has_bus ? lanes * lane * kMega : 0;
  }

  int (*handle_)(unsigned int, Handle*) = nullptr;
  int (*peers_)(Handle, Handle, int, int*) = nullptr;
  int (*nvlink_)(Handle, unsigned int, unsigned int*) = nullptr;
  int (*nvlink_version_)(Handle, unsigned int, unsigned int*) = nullptr;
  int (*bus_generation_)(Handle, unsigned int*) = nullptr;
  int (*bus_width_)(Handle, unsigned int*) = nullptr;
};

/// The part of CUDA's driver library that is used, with the values of its header cuda.h.
class CudaDriver : private Library {
 public:
  explicit CudaDriver(const char* path) : Library(path), path_(path) {
    Bind("cuInit", init_);
    Bind("cuDeviceGetByPCIBusId", by_place_);
    Bind("cuDeviceGetAttribute", attribute_);
  }

  /// Tells of each card at `places` why RDMA devices may not use its memory.
  void Tell(const std::vector<std::string>& places) const {
    const std::string fault = Begin();
    for (size_t i = 0; i < places.size(); ++i) {
      Say({"dma_buf", std::to_string(i), fault.empty() ? WhyNot(places[i]) : fault});
    }
  }

 private:
  static constexpr int kFlushOptions = 117;  ///< CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_…
  static constexpr int kWritesOrdering = 118;
  static constexpr int kDmaBuf = 124;
  static constexpr int kFlushByHost = 1;
  static constexpr int kOrderedForOwner = 100;  ///< Larger values: for other cards, too.

  std::string Begin() const {
    if (!complete_) {
      return path_ + " is missing";
    }
    const int code = init_(0);
    return code == 0 ? "" : "CUDA does not start: error " + std::to_string(code);
  }

  std::string WhyNot(const std::string& place) const {
    int card = 0;
    if (place.empty() || by_place_(&card, place.c_str()) != 0) {
      return "CUDA does not show the card";
    }
    const auto value = [&](int attribute) {
      int found = 0;
      return attribute_(&found, attribute, card) == 0 ? found : 0;
    };
    if (value(kDmaBuf) == 0) {
      return "the driver does not export the card's memory; it needs NVIDIA's open kernel modules "
             "and Linux 5.12";
    }
    if (value(kWritesOrdering) < kOrderedForOwner && (value(kFlushOptions) & kFlushByHost) == 0) {
      return "kernels might read what was there before a network device wrote";
    }
    return "";
  }

  const std::string path_;
  int (*init_)(unsigned int) = nullptr;
  int (*by_place_)(int*, const char*) = nullptr;
  int (*attribute_)(int*, int, int) = nullptr;
};

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2 && argc != 3) {
    return 2;  // No user calls it.
  }
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  const Nvml nvml(argv[1]);
  if (!nvml.loaded()) {
    Say({"none"});
    return 0;
  }
  const std::vector<std::string> places = nvml.Tell();
  PeerLinks(argv[1]).Tell(static_cast<unsigned int>(places.size()));
  if (argc == 3) {
    CudaDriver(argv[2]).Tell(places);
  }
  return 0;
}
