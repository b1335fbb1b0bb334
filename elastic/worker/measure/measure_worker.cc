#include "elastic/worker/measure/measure_worker.h"

#include <utility>

#include "elastic/worker/measure/kept_profile.h"
#include "elastic/worker/measure/link_probe.h"
#include "engine/runtime/device/cpu_device.h"
#include "engine/runtime/device/peer_memory.h"
#include "engine/runtime/profiler.h"

namespace heddle::elastic {
namespace {

// The speed at which all emulated workers are measured. They sleep between instructions, and after
// a sleep caches are colder: at one speed all profiles see the same caches.
constexpr double kEmulatedSpeed = 0.5;

Result<KeptProfile> ProfileOf(const MeasuredAs& as, KeptFiles& files, Progress& progress) {
  const bool emulated = as.emulation.speed < 1;
  const ProfileKey key{.work = as.work,
                       .emulated = emulated,
                       .threads = as.threads,
                       .arithmetic = as.device->arithmetic()};
  HEDDLE_ASSIGN_OR_RETURN(KeptProfile kept, GetProfile(files, key, [&] {
                            if (!emulated) {
                              return runtime::MeasureProfile(*as.work, *as.device, progress);
                            }
                            runtime::CpuDevice slow({.speed = kEmulatedSpeed});
                            return runtime::MeasureProfile(*as.work, slow, progress);
                          }));
  if (emulated) {
    ScaleProfile(kept.profile, kEmulatedSpeed / as.emulation.speed);
  }
  kept.profile.worker = as.worker;
  const int64_t cap = as.device->memory_cap();
  // The emulated cap of a device in the host's memory is on state and values alone.
  const int64_t beside = as.device->is_host() ? 0 : kept.profile.scratch_bytes;
  kept.profile.memory_bytes = PlannedBytes(cap, beside);
  return kept;
}

}  // namespace

Result<WorkerMeasurement> MeasureWorker(const MeasuredAs& as,
                                        KeptFiles& kept,
                                        comm::EndpointOptions endpoint,
                                        Progress& progress) {
  HEDDLE_ASSIGN_OR_RETURN(KeptProfile profile, ProfileOf(as, kept, progress));
  endpoint.link_bytes_per_second = as.emulation.link_bytes_per_second;
  HEDDLE_ASSIGN_OR_RETURN(const MeasuredLink link, OwnLink(kept, endpoint));
  const runtime::PeerMemory* const peers = as.device->peer_memory();
  return WorkerMeasurement{
      .profile = std::move(profile.profile),
      .link = link,
      .profile_measured_at = profile.measured_at,
      .speed = as.emulation.speed,
      .link_bytes_per_second = as.emulation.link_bytes_per_second,
      .threads = as.threads,
      .card = as.device->card(),
      .card_bytes = as.device->is_host() ? 0 : as.device->memory_bytes(),
      .peer_bytes_per_second = peers == nullptr ? 0 : peers->bytes_per_second()};
}

}  // namespace heddle::elastic
