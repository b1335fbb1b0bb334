// NVML as far as engine/machine/main/main.cc uses it. The environment says what there is:
//   FAKE_NVML_INIT    the code that nvmlInit_v2 returns; default 0; "crash": it ends the process
//   FAKE_NVML_HANG    the call that does not return: "load", "init" or the number of a card
//   FAKE_NVML_DRIVER  the driver's version; default 580.65.06
//   FAKE_NVML_CARDS   NAME,MEMORY,FREE in MiB, a card after each ';'; default none. Parts of a card
//                     (MIG) follow it, each after a '|', in the same form. A card without
//                     MEMORY shares the processor's, and one that is named "lost" is off the bus.
//   FAKE_NVML_PEERS   a word of each card, after a ';': "nvlink LINKS VERSION" or "bus GENERATION LANES";
//                     a card without one reads no other card's memory
//                     The places on the bus are 00000000:01:00.0 and so on, the UUIDs GPU-1 and so on.
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <sstream>
#include <string>
#include <vector>

#include <unistd.h>

struct Memory {  // In no unnamed namespace, which would hide the function that takes it.
  unsigned long long total, free, used;
};
struct Pci {
  char legacy_id[16];
  unsigned int domain, bus, device, device_id, subsystem_id;
  char id[32];
};

namespace {

constexpr int kSuccess = 0;
constexpr int kInvalidArgument = 2;
constexpr int kNotSupported = 3;
constexpr int kNotFound = 6;
constexpr int kGpuIsLost = 15;

std::string Variable(const char* name, const char* otherwise) {
  const char* const value = std::getenv(name);
  return value == nullptr ? otherwise : value;
}

std::vector<std::string> Split(const std::string& text, char separator) {
  std::vector<std::string> parts;
  std::istringstream stream(text);
  for (std::string part; std::getline(stream, part, separator);) {
    parts.push_back(part);
  }
  return parts;
}

// A handle is the number of its card from 1 on, and kPart for each part up to its own.
constexpr size_t kPart = 100;

// The card that a handle stands for or is a part of, and then its parts.
std::vector<std::string> Divided(const void* handle) {
  const auto number = reinterpret_cast<size_t>(handle);
  return Split(Split(Variable("FAKE_NVML_CARDS", ""), ';').at(number % kPart - 1), '|');
}

// The words of the card or part that a handle stands for.
std::vector<std::string> CardOf(const void* handle) {
  return Split(Divided(handle).at(reinterpret_cast<size_t>(handle) / kPart), ',');
}

struct Peers {
  std::string kind;
  unsigned int count = 0;
  unsigned int value = 0;
};

Peers PeersOf(const void* handle) {
  const std::vector<std::string> all = Split(Variable("FAKE_NVML_PEERS", ""), ';');
  const size_t index = reinterpret_cast<size_t>(handle) % kPart - 1;
  Peers peers;
  if (index < all.size()) {
    std::istringstream(all[index]) >> peers.kind >> peers.count >> peers.value;
  }
  return peers;
}

int Copy(const std::string& text, char* out, unsigned int length) {
  if (text.size() >= length) {
    return kInvalidArgument;
  }
  std::memcpy(out, text.c_str(), text.size() + 1);
  return kSuccess;
}

// Does not return if the environment says that `call` hangs.
void MayHang(const std::string& call) {
  while (Variable("FAKE_NVML_HANG", "") == call) {
    ::pause();
  }
}

[[gnu::constructor]] void Load() {
  MayHang("load");
}

}  // namespace

extern "C" {

int nvmlInit_v2() {
  MayHang("init");
  if (Variable("FAKE_NVML_INIT", "0") == "crash") {
    std::abort();
  }
  return std::stoi(Variable("FAKE_NVML_INIT", "0"));
}

const char* nvmlErrorString(int code) {
  switch (code) {
    case kGpuIsLost:
      return "GPU is lost";
    case 18:
      return "Driver/library version mismatch";
    default:
      return "Unknown Error";
  }
}

int nvmlSystemGetDriverVersion(char* version, unsigned int length) {
  return Copy(Variable("FAKE_NVML_DRIVER", "580.65.06"), version, length);
}

int nvmlDeviceGetCount_v2(unsigned int* count) {
  *count = static_cast<unsigned int>(Split(Variable("FAKE_NVML_CARDS", ""), ';').size());
  return kSuccess;
}

int nvmlDeviceGetHandleByIndex_v2(unsigned int index, void** handle) {
  *handle = reinterpret_cast<void*>(size_t{index} + 1);
  return CardOf(*handle).front() == "lost" ? kGpuIsLost : kSuccess;
}

int nvmlDeviceGetName(void* handle, char* name, unsigned int length) {
  return Copy(CardOf(handle).front(), name, length);
}

int nvmlDeviceGetMemoryInfo(void* handle, Memory* memory) {
  MayHang(std::to_string(reinterpret_cast<size_t>(handle) - 1));
  const std::vector<std::string> words = CardOf(handle);
  if (words.size() < 3) {
    return kNotSupported;
  }
  memory->total = std::stoull(words[1]) << 20;
  memory->free = std::stoull(words[2]) << 20;
  memory->used = memory->total - memory->free;
  return kSuccess;
}

int nvmlDeviceGetPciInfo_v3(void* handle, Pci* pci) {
  std::snprintf(pci->id, sizeof(pci->id), "%08X:%02zX:00.0", 0U, reinterpret_cast<size_t>(handle));
  return kSuccess;
}

int nvmlDeviceGetMigMode(void* handle, unsigned int* now, unsigned int* pending) {
  *now = *pending = Divided(handle).size() > 1 ? 1 : 0;
  return kSuccess;
}

int nvmlDeviceGetMaxMigDeviceCount(void* /*handle*/, unsigned int* count) {
  *count = 7;
  return kSuccess;
}

int nvmlDeviceGetMigDeviceHandleByIndex(void* handle, unsigned int index, void** part) {
  const size_t number = reinterpret_cast<size_t>(handle) + (size_t{index} + 1) * kPart;
  *part = reinterpret_cast<void*>(number);
  return size_t{index} + 1 < Divided(handle).size() ? kSuccess : kNotFound;
}

int nvmlDeviceGetUUID(void* handle, char* uuid, unsigned int length) {
  const bool whole = reinterpret_cast<size_t>(handle) < kPart;
  return Copy((whole ? "GPU-" : "MIG-") + std::to_string(reinterpret_cast<size_t>(handle)), uuid,
              length);
}

int nvmlDeviceGetP2PStatus(void* own, void* other, int index, int* status) {
  constexpr int kNotSupportedByPair = 5;
  *status = index == 0 && !PeersOf(own).kind.empty() && !PeersOf(other).kind.empty() && own != other
                ? 0
                : kNotSupportedByPair;
  return kSuccess;
}

int nvmlDeviceGetNvLinkState(void* handle, unsigned int link, unsigned int* on) {
  const Peers peers = PeersOf(handle);
  *on = link % 2;  // Every other link is used.
  return peers.kind == "nvlink" && link < 2 * peers.count ? kSuccess : kInvalidArgument;
}

int nvmlDeviceGetNvLinkVersion(void* handle, unsigned int /*link*/, unsigned int* version) {
  *version = PeersOf(handle).value;
  return kSuccess;
}

int nvmlDeviceGetMaxPcieLinkGeneration(void* handle, unsigned int* generation) {
  *generation = PeersOf(handle).count;
  return PeersOf(handle).kind == "bus" ? kSuccess : kNotSupported;
}

int nvmlDeviceGetMaxPcieLinkWidth(void* handle, unsigned int* lanes) {
  *lanes = PeersOf(handle).value;
  return kSuccess;
}
}
