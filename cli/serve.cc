#include "elastic/service/serve.h"

#include "base/system/socket_address.h"
#include "cli/command.h"
#include "cli/option_number.h"
#include "cli/output.h"

namespace heddle::cli {
namespace {

class Serve : public Command {
 public:
  std::string name() const override { return "serve"; }
  std::string summary() const override { return "Run the persistent coordinator"; }
  std::string examples() const override {
    return "Examples:\n  heddle serve --store /var/lib/heddle --listen 10.0.0.1:4600 --certs "
           "lab/coordinator --output-root /shared/runs\n"
           "  heddle serve --store etcd://10.0.0.1:2379,10.0.0.2:2379/heddle --listen "
           "10.0.0.1:4600 --certs lab/coordinator --output-root /shared/runs\n"
           "  heddle submit job.yaml --coordinator 10.0.0.1:4600 --certs lab/operator --out "
           "/shared/runs/a";
  }
  void Declare(Arguments& arguments) override {
    arguments.Option("store", &options_.store,
                     "Folder of the coordinator's own state, or etcd://HOST:PORT,…/PREFIX: then "
                     "several coordinators may run, of which one leads",
                     true);
    arguments.Option("listen", &options_.listen, "HOST:PORT [127.0.0.1:4600]");
    arguments.Option(
        "certs", &options_.certificates,
        "Folder of the coordinator's certificate: all connections are TLS, and who may "
        "do what is checked");
    arguments.Option("authority", &options_.authority,
                     "Folder of the authority's key: workers join by tokens, and renew their "
                     "certificates [neither]");
    arguments.Option("certificate-life", &life_,
                     "How long certificates live that workers get so [24h]");
    arguments.Flag("insecure", &options_.insecure,
                   "Listen beyond loopback without --certs: whoever reaches the port may do "
                   "everything");
    arguments.OptionList(
        "output-root", &options_.output_roots,
        "Folder or s3://BUCKET/PREFIX below which jobs may write; may be repeated. "
        "The first folder has the runs of jobs that name none [STORE/runs; etcd: "
        "required]");
    arguments.Option("metrics", &metrics_,
                     "HOST:PORT of metrics and the status page [127.0.0.1, any free port]");
  }
  int Run() override {
    if (!life_.empty()) {
      const auto life = ParseLife("certificate-life", life_, elastic::kMaxRequestedLife);
      if (!life.ok()) {
        return Report(life.status());
      }
      options_.certificate_life = *life;
    }
    if (!metrics_.empty()) {
      const Result<SocketAddress> address = ParseSocketAddress(metrics_);
      if (!address.ok()) {
        return Report(address.status().WithContext("--metrics"));
      }
      options_.metrics_host = HostOf(*address);
      options_.metrics_port = PortOf(*address);
    }
    return Report(elastic::Serve(options_));
  }

 private:
  elastic::ServeOptions options_;
  std::string metrics_;
  std::string life_;
};

}  // namespace

std::unique_ptr<Command> MakeServe() {
  return std::make_unique<Serve>();
}

}  // namespace heddle::cli
