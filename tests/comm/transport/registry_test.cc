// Opening transports: which of them, with what, and why the others are not there. Three of this
// test's own stand beside the product's.
#include "comm/transport/registry.h"

#include <algorithm>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "comm/cost/transport_traits.h"

namespace heddle::comm {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

const DeclaredTransport kBroken({.name = "broken", .title = "a broken one", .rank = 901});
const DeclaredTransport kFickle({.name = "fickle",
                                 .title = "a fickle one",
                                 .rank = 900,
                                 .optional = true,
                                 .options = {{.name = "mood"}, {.name = "other"}}});
const DeclaredTransport kUnlinked(
    {.name = "unlinked", .title = "an unlinked one", .rank = 902, .optional = true});

TransportSettings settings_given;
StatusCode fickle_fails_with = StatusCode::kUnavailable;

Result<std::unique_ptr<Transport>> OpenFickle(const TransportSettings& settings) {
  settings_given = settings;
  return Status(fickle_fails_with, "it does not feel like it");
}
Result<std::unique_ptr<Transport>> OpenBroken(const TransportSettings& /*settings*/) {
  return ResourceExhaustedError("it is broken");
}
std::vector<NetworkPort> PortsOfFickle(const std::string& bind_host) {
  NetworkPort port;
  port.name = "port of " + bind_host;
  return {port};
}

const RegisteredTransport kRegisteredFickle("fickle", &OpenFickle, &PortsOfFickle);
const RegisteredTransport kRegisteredBroken("broken", &OpenBroken);

EndpointOptions Opening(const std::vector<std::string>& names) {
  EndpointOptions options;
  options.open = names;
  return options;
}

TEST(TransportTraitsTest, WhatIsDeclaredIsFoundInTheOrderOfRanks) {
  const std::span<const TransportTraits> declared = DeclaredTransports();
  EXPECT_TRUE(std::ranges::is_sorted(declared, {}, &TransportTraits::rank));
  const std::vector<std::string> names = TransportNames();
  ASSERT_EQ(names.size(), declared.size());
  EXPECT_EQ(names.front(), "shm");
  EXPECT_EQ(std::vector<std::string>(names.end() - 3, names.end()),
            (std::vector<std::string>{"fickle", "broken", "unlinked"}));
  EXPECT_EQ(FindTransport("fickle")->title, "a fickle one");
  EXPECT_EQ(FindTransport("pigeon"), nullptr);
  EXPECT_EQ(UniversalTransport(), "tcp");
}

TEST(TransportTraitsTest, NamesAreKnownAndStandOnce) {
  using Names = std::vector<std::string>;
  EXPECT_TRUE(CheckTransportNames({}).ok());
  EXPECT_TRUE(CheckTransportNames(Names{"tcp", "shm", "fickle"}).ok());
  Status status = CheckTransportNames(Names{"tcp", "pigeon"});
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(status.message(), HasSubstr("'pigeon' is no transport: there are shm, "));
  for (const Names& twice : {Names{"tcp", "tcp"}, Names{"shm", "tcp", "shm"}}) {
    status = CheckTransportNames(twice);
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
    EXPECT_EQ(status.message(), "the transport " + twice.back() + " twice");
  }
}

TEST(RegistryTest, OneThatIsNotLinkedOrNotDeclaredIsSaid) {
  for (const std::string name : {"unlinked", "pigeon"}) {
    const auto opened = OpenTransport(name, {});
    EXPECT_EQ(opened.status().code(), StatusCode::kUnimplemented);
    EXPECT_EQ(opened.status().message(), "this program was built without " + name);
  }
}

TEST(RegistryTest, AnOptionThatItDoesNotHaveIsRefused) {
  const auto opened = OpenTransport("fickle", {.options = {{"mood", "good"}, {"colour", "red"}}});
  EXPECT_EQ(opened.status().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(opened.status().message(), "the transport fickle has no option 'colour'");
  EXPECT_EQ(
      OpenTransport("fickle", {.options = {{"mood", "good"}, {"other", "x"}}}).status().code(),
      StatusCode::kUnavailable);
}

TEST(RegistryTest, ATransportIsOpenedWithItsOwnOptionsThatAreSet) {
  EndpointOptions options = Opening({"fickle", "shm"});
  options.bind_host = "127.0.0.3";
  options.transport_options = {{"fickle", {{"mood", "good"}, {"other", ""}}},
                               {"tcp", {{"streams", "2"}}}};
  const auto transports = OpenTransports(options);
  ASSERT_TRUE(transports.ok()) << transports.status().ToString();
  EXPECT_EQ(settings_given.bind_host, "127.0.0.3");
  EXPECT_THAT(settings_given.options, ElementsAre(std::pair("mood", "good")));
  EXPECT_EQ(settings_given.option("mood"), "good");
  EXPECT_EQ(settings_given.option("other"), "");
}

TEST(RegistryTest, WhyEachOtherIsAbsentIsKept) {
  const auto transports = OpenTransports(Opening({"shm", "tcp", "fickle", "unlinked"}));
  ASSERT_TRUE(transports.ok()) << transports.status().ToString();
  std::vector<std::string> open;
  for (const auto& transport : transports->open) {
    open.push_back(transport->name());
  }
  EXPECT_THAT(open, ElementsAre("shm", "tcp"));
  EXPECT_EQ(transports->absent.at("fickle"), "it does not feel like it");
  EXPECT_EQ(transports->absent.at("unlinked"), "this program was built without unlinked");
  EXPECT_EQ(transports->absent.at("broken"), "switched off");
  EXPECT_FALSE(transports->absent.contains("tcp"));
}

// One that every machine has must open, and settings that cannot be are never passed over.
TEST(RegistryTest, WhatMustOpenOrIsAskedForWronglyIsAnError) {
  EXPECT_EQ(OpenTransports(Opening({"shm", "broken"})).status().message(), "it is broken");
  EXPECT_EQ(OpenTransports(Opening({})).status().message(), "it is broken")
      << "no list: all of them";
  fickle_fails_with = StatusCode::kInvalidArgument;
  EXPECT_EQ(OpenTransports(Opening({"fickle"})).status().code(), StatusCode::kInvalidArgument);
  fickle_fails_with = StatusCode::kUnavailable;
  EXPECT_EQ(OpenTransports(Opening({"pigeon"})).status().code(), StatusCode::kInvalidArgument);
  EndpointOptions options = Opening({"shm"});
  options.transport_options["pigeon"]["speed"] = "1";
  EXPECT_EQ(OpenTransports(options).status().code(), StatusCode::kInvalidArgument);
}

TEST(RegistryTest, PortsAreListedOfThoseThatHaveSome) {
  int seen = 0;
  for (const auto& [traits, ports] : ListNetworkPorts("10.0.0.1")) {
    EXPECT_NE(traits->name, "broken");
    EXPECT_NE(traits->name, "tcp");
    if (traits->name == "fickle") {
      ++seen;
      ASSERT_EQ(ports.size(), 1U);
      EXPECT_EQ(ports.front().name, "port of 10.0.0.1");
    }
  }
  EXPECT_EQ(seen, 1);
}

// "streams" of TCP.
TEST(RegistryTest, ANumberOfStreamsIsAWholeOneUpToEight) {
  for (const char* streams : {"", "0", "1", "8"}) {
    EXPECT_TRUE(OpenTransport("tcp", {.options = {{"streams", streams}}}).ok()) << streams;
  }
  for (const char* streams : {"-1", "9", "two", "2x", " 2", "99999999999999"}) {
    const auto opened = OpenTransport("tcp", {.options = {{"streams", streams}}});
    EXPECT_EQ(opened.status().code(), StatusCode::kInvalidArgument) << streams;
    EXPECT_THAT(opened.status().message(), HasSubstr("between 0 and 8")) << streams;
  }
  EXPECT_EQ(OpenTransport("tcp", {.bind_host = "192.0.2.1"}).status().code(),
            StatusCode::kInvalidArgument);
}

// Whom each of the product's transports reaches, by the parts of the addresses.
TEST(RoutesTest, EachLeadsWhereItsPartOfTheAddressSays) {
  const auto tcp = *OpenTransport("tcp", {});
  const auto shm = *OpenTransport("shm", {});
  const AddressParts own{{"host", "a"}, {"shm", "x"}};
  const AddressParts neighbour{{"host", "a"}, {"shm", "name"}, {"tcp", "10.0.0.1:7"}};
  ASSERT_EQ(tcp->RoutesTo(own, neighbour, 0).size(), 1U);
  EXPECT_EQ(tcp->RoutesTo(own, neighbour, 0).front().to, "10.0.0.1:7");
  EXPECT_TRUE(tcp->RoutesTo(own, {{"host", "a"}}, 0).empty());
  ASSERT_EQ(shm->RoutesTo(own, neighbour, 0).size(), 1U);
  EXPECT_EQ(shm->RoutesTo(own, neighbour, 0).front().to, "name");
  EXPECT_TRUE(shm->RoutesTo(own, {{"host", "a"}}, 0).empty()) << "it has none";
  EXPECT_TRUE(shm->RoutesTo(own, {{"host", "b"}, {"shm", "name"}}, 0).empty()) << "elsewhere";
  EXPECT_TRUE(shm->RoutesTo(own, {{"shm", "name"}}, 0).empty()) << "on an unknown host";
  EXPECT_TRUE(shm->RoutesTo({{"shm", "x"}}, neighbour, 0).empty()) << "from an unknown host";
  EXPECT_TRUE(shm->RoutesTo({{"host", ""}}, {{"host", ""}, {"shm", "name"}}, 0).empty())
      << "hosts without an identity are not the same";
}

TEST(AddressTest, WhoPassesDescriptorsIsSeenByTheAddress) {
  EXPECT_TRUE(PassesDescriptors({{"host", "a"}, {"shm", "name"}}));
  EXPECT_FALSE(PassesDescriptors({{"host", "a"}, {"tcp", "1.2.3.4:5"}}));
  EXPECT_FALSE(PassesDescriptors({}));
}

TEST(AddressTest, AHostsIdentityIsItsBootAndNetwork) {
  const std::string identity = HostIdentity();
  EXPECT_EQ(identity, HostIdentity());
  EXPECT_EQ(identity.find('\n'), std::string::npos);
  const size_t dot = identity.find('.');
  ASSERT_EQ(dot, 36U) << identity;  // A boot's number is a UUID.
  EXPECT_GT(std::stoull(identity.substr(dot + 1)), 0U);
}

}  // namespace
}  // namespace heddle::comm
