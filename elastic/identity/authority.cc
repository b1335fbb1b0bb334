#include "elastic/identity/authority.h"

#include <algorithm>
#include <array>
#include <set>

#include <openssl/rand.h>

#include "base/system/file.h"
#include "elastic/identity/credentials.h"
#include "elastic/identity/openssl.h"
#include "elastic/identity/party_folder.h"
#include "elastic/identity/request.h"

namespace heddle::elastic {
namespace {

constexpr const char* kAuthorityFolder = "authority";

// ---- Certificates ----

Status AddExtension(X509* certificate, X509* issuer, int nid, const std::string& value) {
  X509V3_CTX context;
  X509V3_set_ctx_nodb(&context);
  X509V3_set_ctx(&context, issuer, certificate, nullptr, nullptr, 0);
  X509_EXTENSION* extension = X509V3_EXT_conf_nid(nullptr, &context, nid, value.c_str());
  const bool added = extension != nullptr && X509_add_ext(certificate, extension, -1) == 1;
  X509_EXTENSION_free(extension);
  return added ? Status::Ok()
               : OpenSslError(StatusCode::kInternal, "a certificate's extension " + value);
}

// Makes the part that is common to all certificates: subject, times, number and key.
Result<CertificatePtr> Draft(const std::string& name, EVP_PKEY* key, std::chrono::seconds life) {
  // X.509 allows no longer subject. It is for people; the name in the URI counts.
  const std::string subject = name.substr(0, 64);
  const auto seconds = static_cast<long>(life.count());
  const long ahead = std::min(kClockSkewSeconds, seconds);
  CertificatePtr certificate(X509_new());
  std::array<unsigned char, 16> number{};
  if (certificate == nullptr || RAND_bytes(number.data(), static_cast<int>(number.size())) != 1) {
    return OpenSslError(StatusCode::kInternal, "make a certificate");
  }
  number[0] = static_cast<unsigned char>((number[0] & 0x7f) | 0x40);  // Positive, of full length.
  BIGNUM* const big = BN_bin2bn(number.data(), static_cast<int>(number.size()), nullptr);
  const bool numbered =
      BN_to_ASN1_INTEGER(big, X509_get_serialNumber(certificate.get())) != nullptr;
  BN_free(big);
  const auto* text = reinterpret_cast<const unsigned char*>(subject.c_str());
  if (!numbered || X509_set_version(certificate.get(), X509_VERSION_3) != 1 ||
      X509_gmtime_adj(X509_getm_notBefore(certificate.get()), -ahead) == nullptr ||
      X509_time_adj_ex(X509_getm_notAfter(certificate.get()), 0, seconds, nullptr) == nullptr ||
      X509_NAME_add_entry_by_NID(X509_get_subject_name(certificate.get()), NID_commonName,
                                 MBSTRING_UTF8, text, -1, -1, 0) != 1 ||
      X509_set_pubkey(certificate.get(), key) != 1) {
    return OpenSslError(StatusCode::kInternal, "make a certificate");
  }
  return certificate;
}

Result<std::string> Sign(X509* certificate, X509* issuer, EVP_PKEY* by) {
  if (X509_set_issuer_name(certificate, X509_get_subject_name(issuer)) != 1 ||
      X509_sign(certificate, by, EVP_sha256()) == 0) {
    return OpenSslError(StatusCode::kInternal, "sign a certificate");
  }
  return CertificatePem(certificate);
}

Result<std::chrono::seconds> LifeOfDays(int days) {
  if (days < 1 || days > kMaxDays) {
    return InvalidArgumentError("a certificate is valid for 1 to {} days, got {}", kMaxDays, days);
  }
  return std::chrono::seconds(int64_t{days} * 86'400);
}

// Makes a party's certificate for `key`.
Result<std::string> Certify(const KeyAndCertificate& authority,
                            const Identity& identity,
                            EVP_PKEY* key,
                            std::chrono::seconds life) {
  // Checked again, since the text below goes into a certificate.
  HEDDLE_RETURN_IF_ERROR(ParseIdentity(IdentityText(identity)).status());
  HEDDLE_ASSIGN_OR_RETURN(const CertificatePtr root, ReadCertificate(authority.certificate));
  HEDDLE_ASSIGN_OR_RETURN(const KeyPtr root_key, ReadKey(authority.key));
  if (X509_check_private_key(root.get(), root_key.get()) != 1) {
    return OpenSslError(StatusCode::kInvalidArgument,
                        "the authority's key is not that of its certificate");
  }
  HEDDLE_ASSIGN_OR_RETURN(const CertificatePtr made, Draft(IdentityText(identity), key, life));
  const bool serves = identity.role == Role::kCoordinator;
  X509* const raw = made.get();
  HEDDLE_RETURN_IF_ERROR(AddExtension(raw, root.get(), NID_basic_constraints, "critical,CA:FALSE"));
  HEDDLE_RETURN_IF_ERROR(AddExtension(raw, root.get(), NID_key_usage, "critical,digitalSignature"));
  HEDDLE_RETURN_IF_ERROR(
      AddExtension(raw, root.get(), NID_ext_key_usage, serves ? "serverAuth" : "clientAuth"));
  HEDDLE_RETURN_IF_ERROR(
      AddExtension(raw, root.get(), NID_subject_alt_name,
                   "URI:" + IdentityUri(identity) +
                       (serves ? std::string(",DNS:") + kCoordinatorDnsName : std::string())));
  HEDDLE_RETURN_IF_ERROR(AddExtension(raw, root.get(), NID_authority_key_identifier, "keyid"));
  return Sign(raw, root.get(), root_key.get());
}

// ---- Folders ----

std::string WithoutSlashes(std::string path) {
  while (path.size() > 1 && path.back() == '/') {
    path.pop_back();
  }
  return path;
}

Result<std::vector<Identity>> Parties(const std::vector<std::string>& workers) {
  std::vector<Identity> parties = {{.role = Role::kCoordinator, .name = ""},
                                   {.role = Role::kOperator, .name = ""},
                                   {.role = Role::kViewer, .name = ""}};
  std::set<std::string> names;
  for (const std::string& worker : workers) {
    HEDDLE_ASSIGN_OR_RETURN(Identity identity, ParseIdentity("worker/" + worker));
    if (!names.insert(identity.name).second) {
      return InvalidArgumentError("two workers are named '{}'", worker);
    }
    parties.push_back(std::move(identity));
  }
  return parties;
}

}  // namespace

Result<KeyAndCertificate> MakeAuthority(int days) {
  HEDDLE_ASSIGN_OR_RETURN(const std::chrono::seconds life, LifeOfDays(days));
  HEDDLE_ASSIGN_OR_RETURN(const KeyPtr key, MakeKey());
  HEDDLE_ASSIGN_OR_RETURN(const CertificatePtr root, Draft("Heddle authority", key.get(), life));
  X509* const raw = root.get();
  HEDDLE_RETURN_IF_ERROR(
      AddExtension(raw, raw, NID_basic_constraints, "critical,CA:TRUE,pathlen:0"));
  HEDDLE_RETURN_IF_ERROR(AddExtension(raw, raw, NID_key_usage, "critical,keyCertSign,cRLSign"));
  HEDDLE_RETURN_IF_ERROR(AddExtension(raw, raw, NID_subject_key_identifier, "hash"));
  KeyAndCertificate made;
  HEDDLE_ASSIGN_OR_RETURN(made.key, KeyPem(key.get()));
  HEDDLE_ASSIGN_OR_RETURN(made.certificate, Sign(raw, raw, key.get()));
  return made;
}

Result<KeyAndCertificate> Issue(const KeyAndCertificate& authority,
                                const Identity& identity,
                                int days) {
  HEDDLE_ASSIGN_OR_RETURN(const std::chrono::seconds life, LifeOfDays(days));
  HEDDLE_ASSIGN_OR_RETURN(const KeyPtr key, MakeKey());
  KeyAndCertificate made;
  HEDDLE_ASSIGN_OR_RETURN(made.key, KeyPem(key.get()));
  HEDDLE_ASSIGN_OR_RETURN(made.certificate, Certify(authority, identity, key.get(), life));
  return made;
}

Result<std::string> IssueFor(const KeyAndCertificate& authority,
                             const Identity& identity,
                             const std::string& request_pem,
                             std::chrono::seconds life) {
  if (life < std::chrono::seconds(1) || life > kMaxRequestedLife) {
    return InvalidArgumentError("a certificate on request lives for 1 s to {} days, got {} s",
                                kMaxRequestedLife.count() / 86'400, life.count());
  }
  HEDDLE_ASSIGN_OR_RETURN(const KeyPtr key, ReadRequest(request_pem));
  return Certify(authority, identity, key.get(), life);
}

Result<KeyAndCertificate> ReadAuthority(const std::string& folder) {
  KeyAndCertificate root;
  HEDDLE_ASSIGN_OR_RETURN(root.key, ReadSecret(folder + kKeyFile));
  HEDDLE_ASSIGN_OR_RETURN(root.certificate,
                          ReadFile(folder + kCertificateFile, kMaxCredentialBytes));
  const Result<KeyPtr> key = ReadKey(root.key);
  HEDDLE_RETURN_IF_ERROR(key.status().WithContext("{}{}", folder, kKeyFile));
  const Result<CertificatePtr> certificate = ReadCertificate(root.certificate);
  HEDDLE_RETURN_IF_ERROR(certificate.status().WithContext("{}{}", folder, kCertificateFile));
  if (X509_check_private_key(certificate->get(), key->get()) != 1) {
    return OpenSslError(StatusCode::kInvalidArgument,
                        folder + kKeyFile + " is not the key of certificate.pem");
  }
  return root;
}

Status InitAuthority(const std::string& folder, const std::vector<std::string>& workers, int days) {
  HEDDLE_ASSIGN_OR_RETURN(const std::vector<Identity> parties, Parties(workers));
  HEDDLE_ASSIGN_OR_RETURN(const std::string place, AbsolutePath(folder));
  const DraftFolder draft(WithoutSlashes(place));
  HEDDLE_ASSIGN_OR_RETURN(const KeyAndCertificate root, MakeAuthority(kAuthorityDays));
  HEDDLE_RETURN_IF_ERROR(MakePrivateFolder(draft.path()));
  HEDDLE_RETURN_IF_ERROR(WriteParty(draft.path() + "/" + kAuthorityFolder, root, ""));
  HEDDLE_RETURN_IF_ERROR(MakePrivateFolder(draft.path() + "/worker"));
  for (const Identity& identity : parties) {
    HEDDLE_ASSIGN_OR_RETURN(const KeyAndCertificate party, Issue(root, identity, days));
    HEDDLE_RETURN_IF_ERROR(
        WriteParty(draft.path() + "/" + IdentityText(identity), party, root.certificate));
  }
  HEDDLE_RETURN_IF_ERROR(SyncFolder(draft.path() + "/worker"));
  HEDDLE_RETURN_IF_ERROR(SyncFolder(draft.path()));
  return draft.Publish();
}

Result<std::string> IssueInto(const std::string& folder, const Identity& identity, int days) {
  const std::string authority = folder + "/" + kAuthorityFolder;
  HEDDLE_ASSIGN_OR_RETURN(const KeyAndCertificate root, ReadAuthority(authority));
  const Result<KeyAndCertificate> party = Issue(root, identity, days);
  HEDDLE_RETURN_IF_ERROR(party.status().WithContext("{}", authority));
  const std::string place = folder + "/" + IdentityText(identity);
  if (!FileExists(folder + "/worker")) {
    HEDDLE_RETURN_IF_ERROR(MakePrivateFolder(folder + "/worker"));
  }
  const DraftFolder draft(place);
  HEDDLE_RETURN_IF_ERROR(WriteParty(draft.path(), *party, root.certificate));
  HEDDLE_RETURN_IF_ERROR(draft.Publish());
  return place;
}

}  // namespace heddle::elastic
