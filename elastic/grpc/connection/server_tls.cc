#include "elastic/grpc/connection/server_tls.h"

#include <algorithm>
#include <string_view>

#include <grpc/grpc_security.h>
#include <grpcpp/grpcpp.h>

#include "elastic/identity/join_token.h"

namespace heddle::elastic {
namespace {

grpc_ssl_server_certificate_config* ConfigOf(const Credentials& credentials) {
  // Sends the root, too: a client that joins with a token knows its fingerprint only.
  const std::string chain = credentials.certificate + credentials.authority;
  const grpc_ssl_pem_key_cert_pair pair{.private_key = credentials.key.c_str(),
                                        .cert_chain = chain.c_str()};
  return grpc_ssl_server_certificate_config_create(credentials.authority.c_str(), &pair, 1);
}

std::string_view TextOf(const grpc_slice& slice) {
  return {reinterpret_cast<const char*>(GRPC_SLICE_START_PTR(slice)), GRPC_SLICE_LENGTH(slice)};
}

std::string ValueOf(const grpc_metadata* metadata, size_t count, std::string_view key) {
  const auto* const end = metadata + count;
  const auto* const found = std::find_if(
      metadata, end, [&](const grpc_metadata& entry) { return TextOf(entry.key) == key; });
  return found == end ? "" : std::string(TextOf(found->value));
}

std::string CertificateOf(const grpc_auth_context* context) {
  grpc_auth_property_iterator found =
      grpc_auth_context_find_properties_by_name(context, GRPC_X509_PEM_CERT_PROPERTY_NAME);
  const grpc_auth_property* const property = grpc_auth_property_iterator_next(&found);
  return property == nullptr ? "" : std::string(property->value, property->value_length);
}

void Process(void* judge,
             grpc_auth_context* context,
             const grpc_metadata* metadata,
             size_t count,
             grpc_process_auth_metadata_done_cb done,
             void* user_data) {
  const Status status = static_cast<CallJudge*>(judge)->Judge(
      {.path = ValueOf(metadata, count, ":path"),
       .join_secret = ValueOf(metadata, count, kJoinSecretKey),
       .certificate = CertificateOf(context)});
  done(user_data, nullptr, 0, nullptr, 0, static_cast<grpc_status_code>(status.code()),
       status.message().c_str());
}

class ServerTls : public grpc::ServerCredentials {
 public:
  ServerTls(OwnCertificate& own, CallJudge& judge) : own_(own) {
    credentials_ = grpc_ssl_server_credentials_create_with_options(
        grpc_ssl_server_credentials_create_options_using_config_fetcher(
            GRPC_SSL_REQUEST_CLIENT_CERTIFICATE_BUT_DONT_VERIFY, &ServerTls::Fetch, this));
    grpc_server_credentials_set_auth_metadata_processor(
        credentials_, {.process = &Process, .destroy = nullptr, .state = &judge});
  }
  ~ServerTls() override { grpc_server_credentials_release(credentials_); }
  ServerTls(const ServerTls&) = delete;
  ServerTls& operator=(const ServerTls&) = delete;

  void SetAuthMetadataProcessor(
      const std::shared_ptr<grpc::AuthMetadataProcessor>& /*processor*/) override {}

 private:
  int AddPortToServer(const std::string& address, grpc_server* server) override {
    return grpc_server_add_http2_port(server, address.c_str(), credentials_);
  }

  // gRPC calls this before each handshake, never concurrently.
  static grpc_ssl_certificate_config_reload_status Fetch(
      void* tls, grpc_ssl_server_certificate_config** config) {
    auto* const self = static_cast<ServerTls*>(tls);
    const int64_t version = self->own_.version();
    if (version == self->fetched_) {
      return GRPC_SSL_CERTIFICATE_CONFIG_RELOAD_UNCHANGED;
    }
    self->fetched_ = version;
    *config = ConfigOf(self->own_.current());
    return GRPC_SSL_CERTIFICATE_CONFIG_RELOAD_NEW;
  }

  OwnCertificate& own_;
  int64_t fetched_ = 0;
  grpc_server_credentials* credentials_ = nullptr;
};

}  // namespace

std::shared_ptr<grpc::ServerCredentials> MakeServerTls(OwnCertificate& own, CallJudge& judge) {
  return std::make_shared<ServerTls>(own, judge);
}

}  // namespace heddle::elastic
