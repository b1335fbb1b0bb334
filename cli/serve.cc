#include "elastic/service/serve.h"

#include <charconv>

#include "cli/command.h"
#include "cli/output.h"

namespace heddle::cli {
namespace {

class Serve : public Command {
 public:
  std::string name() const override { return "serve"; }
  std::string summary() const override { return "Run the persistent coordinator"; }
  std::string examples() const override {
    return "Examples:\n  heddle serve --store /var/lib/heddle --listen 10.0.0.1:4600\n"
           "  heddle submit job.yaml --coordinator 10.0.0.1:4600";
  }
  void Declare(Arguments& arguments) override {
    arguments.Option("store", &options_.store, "Folder of the coordinator's own state", true);
    arguments.Option("listen", &options_.listen, "HOST:PORT [127.0.0.1:4600]");
    arguments.Option("metrics", &metrics_,
                     "HOST:PORT of metrics and the status page [127.0.0.1, any free port]");
  }
  int Run() override {
    if (!metrics_.empty()) {
      const size_t colon = metrics_.rfind(':');
      const char* end = metrics_.data() + metrics_.size();
      const auto parsed =
          colon == std::string::npos
              ? std::from_chars_result{nullptr, std::errc::invalid_argument}
              : std::from_chars(metrics_.data() + colon + 1, end, options_.metrics_port);
      if (parsed.ec != std::errc() || parsed.ptr != end || options_.metrics_port < 0 ||
          options_.metrics_port > 65535) {
        return Report(InvalidArgumentError("--metrics: expected HOST:PORT, got '{}'", metrics_));
      }
      options_.metrics_host = metrics_.substr(0, colon);
    }
    return Report(elastic::Serve(options_));
  }

 private:
  elastic::ServeOptions options_;
  std::string metrics_;
};

}  // namespace

std::unique_ptr<Command> MakeServe() {
  return std::make_unique<Serve>();
}

}  // namespace heddle::cli
