/// \file
/// The coordinator's server: one loop thread that runs the state machine, gRPC's threads that post
/// to it, and task threads for long work.
#pragma once

#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/mutex.h"
#include "base/task_thread.h"
#include "base/thread.h"
#include "elastic/grpc/connection/control_port.h"
#include "elastic/grpc/control.grpc.pb.h"
#include "elastic/grpc/durable_machine.h"
#include "elastic/grpc/newest_task.h"
#include "elastic/grpc/server.h"
#include "elastic/grpc/server_session.h"
#include "elastic/grpc/stored_answer.h"

namespace heddle::elastic {

class CoordinatorServer::Impl : public wire::Control::CallbackService {
 public:
  explicit Impl(CoordinatorServerOptions options) : options_(std::move(options)) {}

  heddle::Status Start();
  void Stop();

  heddle::Status SubmitJob(const std::string& yaml, const std::string& path, std::string* job_id);
  /// Runs `call` on the loop's thread and waits; false if the loop ended before it did.
  bool CallAndWait(const std::function<void()>& call);
  /// Queues `call` for the loop's thread.
  void Post(std::function<void()> call);
  /// The machine. Loop thread only.
  DurableMachine& machine() { return *machine_; }
  heddle::Status Health() HEDDLE_EXCLUDES(mutex_);
  std::optional<EndJob> WaitForEnd(Deadline deadline);

  // Called by gRPC.
  grpc::ServerBidiReactor<wire::FromWorker, wire::ToWorker>* Session(
      grpc::CallbackServerContext* context) override;
  grpc::ServerUnaryReactor* Submit(grpc::CallbackServerContext* context,
                                   const wire::SubmitRequest* request,
                                   wire::SubmitReply* reply) override;
  grpc::ServerUnaryReactor* Status(grpc::CallbackServerContext* context,
                                   const wire::StatusRequest* request,
                                   wire::JobStatus* reply) override;
  grpc::ServerUnaryReactor* Drain(grpc::CallbackServerContext* context,
                                  const wire::DrainRequest* request,
                                  wire::DrainReply* reply) override;
  grpc::ServerUnaryReactor* Emulate(grpc::CallbackServerContext* context,
                                    const wire::EmulateRequest* request,
                                    wire::EmulateReply* reply) override;
  grpc::ServerUnaryReactor* Events(grpc::CallbackServerContext* context,
                                   const wire::EventsRequest* request,
                                   wire::EventsReply* reply) override;
  grpc::ServerUnaryReactor* AddToken(grpc::CallbackServerContext* context,
                                     const wire::AddTokenRequest* request,
                                     wire::AddTokenReply* reply) override;
  grpc::ServerUnaryReactor* Revoke(grpc::CallbackServerContext* context,
                                   const wire::RevokeRequest* request,
                                   wire::RevokeReply* reply) override;
  grpc::ServerUnaryReactor* Join(grpc::CallbackServerContext* context,
                                 const wire::JoinRequest* request,
                                 wire::CertificateReply* reply) override;
  grpc::ServerUnaryReactor* Renew(grpc::CallbackServerContext* context,
                                  const wire::RenewRequest* request,
                                  wire::CertificateReply* reply) override;

  const std::string& address() const { return port_->address(); }
  const std::string& resumed_job_id() const { return resumed_job_id_; }

 private:
  /// Makes the machine from what the store has.
  heddle::Status Restore();
  /// Records that the call was authorised, and returns the reactor to answer it with.
  grpc::ServerUnaryReactor* MarkAuthorised(grpc::CallbackServerContext* context);
  heddle::Status ReserveJob();
  /// OK, or kUnavailable while changes wait for the store.
  heddle::Status Stalled() const;
  heddle::Status StoreJob(const std::shared_ptr<const Job>& job);
  heddle::Status DrainWorkers(const wire::DrainRequest& request, std::vector<std::string>* names);
  heddle::Status DrainOnLoop(const wire::DrainRequest& request, std::vector<std::string>* names);
  /// Waits for the answer. Nullopt: there was none within kStoredWithin, or the coordinator ends.
  std::optional<heddle::Status> WaitFor(StoredAnswer& answer);
  /// Calls `begin` on the loop and waits, for kStoredWithin at most, until its change is stored.
  /// `taken` is called on the loop once it is, before this returns. After an error the change does
  /// not count.
  heddle::Status AwaitStored(const std::function<void(std::shared_ptr<const bool> given_up,
                                                      const DurableMachine::Answer& answer)>& begin,
                             const std::function<void()>& taken);
  /// Changes the admission and returns once that is stored.
  heddle::Status ChangeAdmission(const std::function<heddle::Status(Admission&)>& change);
  /// OK if this coordinator issues certificates. Errors: kFailedPrecondition.
  heddle::Status CheckIssues() const;
  /// Makes the certificate of a worker that joins with a token.
  heddle::Status Admit(const grpc::CallbackServerContext& context,
                       const wire::JoinRequest& request,
                       std::string* certificate);
  /// Lets the job go on without the worker. Loop thread only.
  void Evict(const std::string& worker, const std::string& reason);
  heddle::Status RenewFor(const std::string& worker,
                          const std::string& request_pem,
                          std::string* certificate);
  void MakeMachine(Coordinator coordinator, DurableState stored);
  void Run();
  /// False once the server has stopped or lost its store.
  bool IsServing() HEDDLE_EXCLUDES(mutex_);
  bool IsStopping() HEDDLE_EXCLUDES(mutex_);
  void Perform(const CoordinatorAction& action);
  void Log(const LogEvent& event);
  void OnStoreLost(const heddle::Status& status);
  void JobEnded(const EndJob& end);

  const CoordinatorServerOptions options_;
  std::string resumed_job_id_;
  std::unique_ptr<ControlPort> port_;

  // Loop thread only (and Start, before it runs).
  std::shared_ptr<const Job> job_;
  bool submitting_ = false;  ///< A job is being read or stored.

  Mutex mutex_;
  CondVar wake_;
  CondVar changed_;
  std::deque<std::function<void()>> queue_ HEDDLE_GUARDED_BY(mutex_);
  /// Stop was called: calls end, and the loop runs until they have.
  bool stopping_ HEDDLE_GUARDED_BY(mutex_) = false;
  bool stopped_ HEDDLE_GUARDED_BY(mutex_) = false;   ///< The loop ends.
  heddle::Status health_ HEDDLE_GUARDED_BY(mutex_);  ///< What Health() returns.
  std::optional<EndJob> ended_ HEDDLE_GUARDED_BY(mutex_);

  ServerSessions sessions_;

  // Declared after what they use, so that they end first.
  std::unique_ptr<DurableMachine> machine_;  ///< Loop thread only (and Start, before it runs).
  std::unique_ptr<NewestTask> planner_;
  std::unique_ptr<TaskThread> committer_;
  Thread loop_;
};

}  // namespace heddle::elastic
