// heddle-cards LIBRARY: asks NVML, the NVIDIA driver's own library, for the machine's cards. It is a
// program of its own because calls of the driver may hang or crash and cannot be interrupted: who
// asks (engine/machine/cards.cc) waits for a while and then kills it.
//
// Standard output has a line for each fact, as soon as it is known, with a tab between words:
//   none | fault TEXT                            there is no such library | it does not work
//   driver VERSION, then count NUMBER
//   card NAME BYTES FREE_BYTES BUS_ID UUID FAULT for each card, by number
//   part NAME BYTES FREE_BYTES UUID              for each part of the card before it (MIG)
//   end                                          nothing is missing
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

/// The part of NVML that is used, with the types of its header nvml.h.
class Nvml {
 public:
  explicit Nvml(const char* path) : library_(::dlopen(path, RTLD_NOW | RTLD_LOCAL)) {
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

  void Tell() const {
    if (const int code = init_(); code != kSuccess) {
      return Say({"fault", error_(code)});
    }
    Text version{};
    if (driver_(version.data(), kTextBytes) == kSuccess) {
      Say({"driver", version.data()});
    }
    unsigned int count = 0;
    if (const int code = count_(&count); code != kSuccess) {
      return Say({"fault", error_(code)});
    }
    Say({"count", std::to_string(count)});
    for (unsigned int i = 0; i < count; ++i) {
      TellCard(i);
    }
    Say({"end"});
  }

  static void Say(std::initializer_list<std::string> words) { Write(LineOf(words)); }

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

  static std::string LineOf(std::initializer_list<std::string> words) {
    std::string line;
    for (const std::string& word : words) {
      line += line.empty() ? "" : "\t";
      for (const char c : word) {
        line += c == '\t' || c == '\n' ? ' ' : c;
      }
    }
    return line + '\n';
  }
  static void Write(const std::string& line) {
    if (::write(STDOUT_FILENO, line.data(), line.size()) < 0) {
      std::_Exit(1);  // Nobody reads it.
    }
  }

  template <typename Function>
  void Bind(const char* name, Function& function) {
    function = library_ == nullptr ? nullptr : reinterpret_cast<Function>(::dlsym(library_, name));
    complete_ = complete_ && function != nullptr;
  }

  void TellCard(unsigned int index) const {
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
    Say({"card", name.data(), std::to_string(memory.total), std::to_string(memory.free),
         std::string(pci.id.data(), ::strnlen(pci.id.data(), pci.id.size())), uuid.data(),
         code == kSuccess || code == kNotSupported ? "" : error_(code)});
    for (const std::string& part : parts) {
      Write(part);
    }
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

  void* library_;
  bool complete_ = true;
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

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) {
    return 2;  // No user calls it.
  }
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  const Nvml nvml(argv[1]);
  nvml.loaded() ? nvml.Tell() : Nvml::Say({"none"});
  return 0;
}
