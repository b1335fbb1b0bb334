#include "engine/job/devices.h"

#include <vector>

#include "engine/machine/device_choice.h"

namespace heddle::job {

Result<std::map<std::string, std::string>> DevicesHere(const JobConfig& job) {
  std::vector<machine::DeviceName> asked;
  for (const WorkerSection& worker : job.workers) {
    HEDDLE_ASSIGN_OR_RETURN(asked.emplace_back(), machine::ParseDeviceName(worker.device));
  }
  const machine::Cards cards = machine::FindCardsFor(asked);
  for (size_t i = 0; i < asked.size(); ++i) {
    HEDDLE_RETURN_IF_ERROR(machine::ChooseDevice(asked[i], cards, machine::kThisBuild)
                               .status()
                               .WithContext("worker {}", job.workers[i].name));
  }
  const auto chosen = machine::SpreadDevices(asked, cards, machine::kThisBuild);
  std::map<std::string, std::string> devices;
  for (size_t i = 0; i < chosen.size(); ++i) {
    devices[job.workers[i].name] = machine::DeviceNameText(chosen[i]);
  }
  return devices;
}

}  // namespace heddle::job
