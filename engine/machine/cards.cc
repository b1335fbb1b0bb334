#include "engine/machine/cards.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string_view>
#include <utility>

#include <dlfcn.h>

namespace heddle::machine {
namespace {

/// The part of NVML that is used, with the types of its header nvml.h.
class Nvml {
 public:
  explicit Nvml(const std::string& path) : library_(::dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL)) {
    Bind("nvmlInit_v2", init_);
    Bind("nvmlShutdown", shutdown_);
    Bind("nvmlErrorString", error_);
    Bind("nvmlSystemGetDriverVersion", driver_);
    Bind("nvmlDeviceGetCount_v2", count_);
    Bind("nvmlDeviceGetHandleByIndex_v2", handle_);
    Bind("nvmlDeviceGetName", name_);
    Bind("nvmlDeviceGetMemoryInfo", memory_);
    Bind("nvmlDeviceGetPciInfo_v3", pci_);
  }
  ~Nvml() {
    if (library_ != nullptr) {
      ::dlclose(library_);
    }
  }
  Nvml(const Nvml&) = delete;
  Nvml& operator=(const Nvml&) = delete;

  bool loaded() const { return complete_; }

  Cards Read() const {
    Cards cards;
    if (const int code = init_(); code != kSuccess) {
      cards.fault = error_(code);
      return cards;
    }
    Text version{};
    if (driver_(version.data(), static_cast<unsigned int>(version.size())) == kSuccess) {
      cards.driver = version.data();
    }
    unsigned int count = 0;
    if (const int code = count_(&count); code != kSuccess) {
      cards.fault = error_(code);
    }
    for (unsigned int i = 0; i < count; ++i) {
      cards.list.push_back(ReadCard(i));
    }
    shutdown_();
    return cards;
  }

 private:
  static constexpr int kSuccess = 0;
  static constexpr int kNotSupported = 3;  ///< Of memory that a card shares with the processor.
  using Handle = void*;
  using Text = std::array<char, 96>;  ///< As long as NVML asks for at most.
  struct Memory {
    unsigned long long total, free, used;  // NOLINT(google-runtime-int): as NVML has it
  };

  struct Pci {
    std::array<char, 16> legacy_id;
    unsigned int domain, bus, device, device_id, subsystem_id;
    std::array<char, 32> id;
  };

  template <typename Function>
  void Bind(const char* name, Function& function) {
    function = library_ == nullptr ? nullptr : reinterpret_cast<Function>(::dlsym(library_, name));
    complete_ = complete_ && function != nullptr;
  }

  Card ReadCard(unsigned int index) const {
    Card card;
    Handle handle = nullptr;
    Text name{};
    Memory memory{};
    int code = handle_(index, &handle);
    if (code == kSuccess) {
      code = name_(handle, name.data(), static_cast<unsigned int>(name.size()));
      card.name = name.data();
    }
    if (code == kSuccess) {
      code = memory_(handle, &memory);
      card.memory_bytes = static_cast<int64_t>(memory.total);
      card.free_bytes = static_cast<int64_t>(memory.free);
    }
    if (code != kSuccess && code != kNotSupported) {
      card.fault = error_(code);
    }
    if (Pci pci{}; handle != nullptr && pci_(handle, &pci) == kSuccess) {
      card.bus_id.assign(pci.id.data(), ::strnlen(pci.id.data(), pci.id.size()));
    }
    return card;
  }

  void* library_;
  bool complete_ = true;
  int (*init_)() = nullptr;
  int (*shutdown_)() = nullptr;
  const char* (*error_)(int) = nullptr;
  int (*driver_)(char*, unsigned int) = nullptr;
  int (*count_)(unsigned int*) = nullptr;
  int (*handle_)(unsigned int, Handle*) = nullptr;
  int (*name_)(Handle, char*, unsigned int) = nullptr;
  int (*memory_)(Handle, Memory*) = nullptr;
  int (*pci_)(Handle, Pci*) = nullptr;
};

// The version in "NVRM version: NVIDIA UNIX x86_64 Kernel Module  580.65.06  Sun Jul …".
std::string DriverVersion(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  std::istringstream words(line);
  for (std::string word; words >> word;) {
    if (std::isdigit(static_cast<unsigned char>(word.front())) != 0 &&
        word.find('.') != std::string::npos) {
      return word;
    }
  }
  return "";
}

// What follows "Model:" in a card's file of facts.
std::string ModelIn(const std::filesystem::path& path) {
  constexpr std::string_view kKey = "Model:";
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with(kKey)) {
      line.erase(0, kKey.size());
      line.erase(0, std::min(line.find_first_not_of(" \t"), line.size()));
      return line;
    }
  }
  return "";
}

void ReadKernelModule(const std::string& folder, Cards& cards) {
  cards.driver = DriverVersion(folder + "/version");
  std::vector<std::filesystem::path> places;  // Named by their place on the bus.
  std::error_code ignored;
  for (const auto& entry : std::filesystem::directory_iterator(folder + "/gpus", ignored)) {
    places.push_back(entry.path());
  }
  std::ranges::sort(places);
  for (const std::filesystem::path& place : places) {
    cards.list.push_back(
        {.name = ModelIn(place / "information"), .fault = {}, .bus_id = place.filename().string()});
  }
}

}  // namespace

Cards FindCards(const CardSources& sources) {
  const Nvml nvml(sources.nvml);
  Cards cards = nvml.loaded() ? nvml.Read() : Cards();
  if (!nvml.loaded() || !cards.fault.empty()) {
    cards.list.clear();
    ReadKernelModule(sources.proc, cards);
  }
  return cards;
}

}  // namespace heddle::machine
