// The table of calls and roles: complete, and as docs/operate/security.md says.
#include "elastic/grpc/connection/access.h"

#include <map>
#include <set>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "elastic/grpc/control.pb.h"

namespace heddle::elastic {
namespace {

using testing::HasSubstr;
using testing::UnorderedElementsAreArray;

std::string CallOf(const std::string& method) {
  return "/heddle.elastic.wire.Control/" + method;
}

TEST(AccessTest, EveryMethodOfTheServiceIsInTheTableOnce) {
  std::vector<std::string> methods;
  const google::protobuf::FileDescriptor* const file = wire::SubmitRequest::descriptor()->file();
  for (int i = 0; i < file->service_count(); ++i) {
    const google::protobuf::ServiceDescriptor* const service = file->service(i);
    for (int j = 0; j < service->method_count(); ++j) {
      methods.push_back("/" + service->full_name() + "/" + service->method(j)->name());
    }
  }
  ASSERT_FALSE(methods.empty());
  std::vector<std::string> calls;
  for (const CallRule& rule : CallRules()) {
    calls.emplace_back(rule.call);
    EXPECT_EQ(rule.roles.empty(), rule.by_token) << rule.call;
    EXPECT_EQ(IsByToken(rule.call), rule.call == CallOf("Join"));
  }
  EXPECT_THAT(calls, UnorderedElementsAreArray(methods));
}

TEST(AccessTest, RolesMayWhatTheyAreFor) {
  const std::map<Role, std::set<std::string>> may = {
      {Role::kCoordinator, {}},
      {Role::kOperator, {"Submit", "Status", "Drain", "Emulate", "Events", "AddToken", "Revoke"}},
      {Role::kViewer, {"Status", "Events"}},
      {Role::kWorker, {"Session", "Renew"}}};
  for (const auto& [role, methods] : may) {
    const Identity identity{.role = role, .name = role == Role::kWorker ? "a" : ""};
    for (const char* method : {"Session", "Submit", "Status", "Drain", "Emulate", "Events",
                               "AddToken", "Revoke", "Join", "Renew"}) {
      EXPECT_EQ(CheckCall(CallOf(method), identity).ok(), methods.contains(method))
          << method << " by " << IdentityText(identity);
    }
  }
  const Status refused = CheckCall(CallOf("Submit"), {.role = Role::kWorker, .name = "a"});
  EXPECT_EQ(refused.code(), StatusCode::kPermissionDenied);
  EXPECT_EQ(refused.message(), "worker/a may not call Submit: it takes the role operator");
}

TEST(AccessTest, NobodyMayCallWhatTheTableDoesNotHave) {
  for (const char* call : {"", "/", "/heddle.elastic.wire.Control/Shutdown", "Submit",
                           "/heddle.elastic.wire.Control/Submit/"}) {
    EXPECT_EQ(CheckCall(call, {.role = Role::kOperator, .name = ""}).code(),
              StatusCode::kPermissionDenied)
        << call;
  }
}

TEST(AccessTest, AWorkerSpeaksForItsOwnName) {
  wire::FromWorker hello;
  hello.mutable_hello()->set_name("a");
  EXPECT_TRUE(BindName("a", hello).ok());
  EXPECT_TRUE(BindName(std::nullopt, hello).ok()) << "no certificates";
  EXPECT_FALSE(BindName("", hello).ok()) << "one that names no worker";
  const Status other = BindName("b", hello);
  EXPECT_EQ(other.code(), StatusCode::kPermissionDenied);
  EXPECT_THAT(other.message(), HasSubstr("for worker/b"));
  wire::FromWorker forger;
  forger.mutable_hello()->set_name("a\n2026-11-25 error everything is lost");
  EXPECT_EQ(BindName("a", forger).code(), StatusCode::kPermissionDenied);
  EXPECT_EQ(BindName("a", forger).message().find('\n'), std::string::npos);
  hello.mutable_hello()->clear_name();
  EXPECT_FALSE(BindName("", hello).ok());
  EXPECT_TRUE(BindName("b", hello).ok());
  EXPECT_EQ(hello.hello().name(), "b") << "it is not the coordinator that chooses";
  wire::FromWorker heartbeat;
  heartbeat.mutable_heartbeat();
  EXPECT_TRUE(BindName("b", heartbeat).ok());
}

}  // namespace
}  // namespace heddle::elastic
