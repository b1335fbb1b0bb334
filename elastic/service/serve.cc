#include "elastic/service/serve.h"

#include <atomic>
#include <csignal>
#include <thread>

#include "base/system/end_watch.h"
#include "base/system/file.h"
#include "base/system/socket_address.h"
#include "elastic/service/listen_check.h"
#include "elastic/service/progress.h"
#include "elastic/service/service.h"

namespace heddle::elastic {
namespace {

constexpr Duration kEndWithin = std::chrono::milliseconds(1700);

std::atomic<bool> asked_to_end{false};

void NoteSignal(int /*signal*/) {
  asked_to_end.store(true);
}

}  // namespace

Status Serve(const ServeOptions& options) {
  std::signal(SIGINT, NoteSignal);
  std::signal(SIGTERM, NoteSignal);
  std::signal(SIGPIPE, SIG_IGN);
  RaiseDescriptorLimit();
  EndWatch watch([] { return asked_to_end.load(); }, kEndWithin);
  HEDDLE_RETURN_IF_ERROR(CheckCanListen("--listen", options.listen));
  HEDDLE_RETURN_IF_ERROR(CheckCanListen(
      "--metrics", fmt::format("{}:{}", options.metrics_host, options.metrics_port)));
  HEDDLE_RETURN_IF_ERROR(MakeFolders(options.store));
  HEDDLE_ASSIGN_OR_RETURN(const std::string store, AbsolutePath(options.store));
  Progress progress(0, true);
  HEDDLE_ASSIGN_OR_RETURN(
      const auto service,
      Service::Start({.listen = options.listen,
                      .metrics_host = options.metrics_host,
                      .metrics_port = options.metrics_port,
                      .store_path = store + "/coordinator.sqlite",
                      .default_output = store + "/runs",
                      .observer = [&progress](const LogEvent& event) { progress.Note(event); },
                      .workers_outlive = true}));
  HEDDLE_RETURN_IF_ERROR(WriteFileAtomically(
      store + "/job.json", "{\"coordinator\": \"" + service->server().address() +
                               "\", \"metrics\": \"" + service->metrics_address() +
                               "\", \"workers\": []}\n"));
  progress.Say("coordinator " + service->server().address() + ", metrics and status page http://" +
               service->metrics_address() + "/" +
               (service->server().resumed()
                    ? ", going on with job " + service->server().resumed_job_id()
                    : ""));
  bool reported = false;
  while (!asked_to_end.load()) {
    const auto end = service->server().WaitForEnd(After(std::chrono::milliseconds(200)));
    if (end && !reported) {
      progress.Say(end->ok ? "the job has finished" : "the job failed: " + end->reason);
    }
    reported = end.has_value();
    if (Status health = service->server().Health(); !health.ok()) {
      watch.EndWithin(kEndWithin);
      return health;
    }
    if (end) {
      // The job is over; its status stays readable until this process is asked to end.
      // lint: allow sleep: only a signal is left to wait for, and no condition carries it.
      std::this_thread::sleep_until(After(std::chrono::milliseconds(200)));
    }
  }
  return Status::Ok();
}

}  // namespace heddle::elastic
