// One connection, well-behaved or not, against a server in this process.
#include "src/daemon/session.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <random>

#include "absl/time/clock.h"
#include "fmt/format.h"
#include "gmock/gmock.h"
#include "src/client/remote_store.h"
#include "src/protocol/convert.h"
#include "src/protocol/frame.h"
#include "tests/src/testing/blocks.h"
#include "tests/src/testing/local_server.h"
#include "tests/src/testing/raw_client.h"
#include "tests/src/testing/scratch.h"

namespace kvist::daemon {
namespace {

using testing::GoodHits;
using ::testing::HasSubstr;
using testing::RawClient;

class SessionTest : public ::testing::Test {
 protected:
  void Serve(const ServerOptions& options = {}) {
    auto server = testing::LocalServer::Start(socket(), testing::SmallStore(scratch_.path("store")), options);
    ASSERT_TRUE(server.ok()) << server.status();
    server_ = std::make_unique<testing::LocalServer>(std::move(*server));
  }

  std::unique_ptr<RemoteStore> Connect() {
    RemoteStoreOptions options;
    options.socket_path = socket();
    options.staging_bytes = std::uint64_t{4} << 20;
    auto store = RemoteStore::Connect(options);
    EXPECT_TRUE(store.ok()) << store.status();
    return store.ok() ? std::move(*store) : nullptr;
  }

  // Puts a prompt of `blocks` and yields its namespace.
  Namespace Fill(std::size_t blocks) {
    const auto store = Connect();
    auto ns = store->OpenNamespace(testing::SmallSpec(), {});
    EXPECT_TRUE(ns.ok()) << ns.status();
    EXPECT_TRUE(testing::PutPrompt(store.get(), ns->id, blocks).ok());
    return *ns;
  }

  // That the daemon still serves everyone else.
  void ExpectServes(const Namespace& ns, int blocks) {
    const auto store = Connect();
    EXPECT_EQ(GoodHits(store.get(), ns.id, static_cast<std::size_t>(blocks)), blocks);
  }

  // Waits until the server's counters satisfy `condition`.
  template <typename Condition>
  bool Eventually(Condition condition) {
    for (int i = 0; i < 6000; ++i) {
      if (condition(server_->server->stats())) return true;
      absl::SleepFor(absl::Milliseconds(5));
    }
    return false;
  }

  std::string socket() const { return scratch_.path("s"); }

  testing::Scratch scratch_;
  std::unique_ptr<testing::LocalServer> server_;
};

v1::Request AcquireRequest(std::uint64_t id, const Namespace& ns, std::size_t blocks) {
  v1::Request request;
  request.set_id(id);
  protocol::ToWire(ns.id, request.mutable_acquire()->mutable_ns());
  request.mutable_acquire()->set_tokens(protocol::TokensToWire(testing::Prompt(blocks)));
  request.mutable_acquire()->set_max_blocks(1000);
  return request;
}

v1::Request StatsRequest(std::uint64_t id) {
  v1::Request request;
  request.set_id(id);
  request.mutable_stats();
  return request;
}

TEST_F(SessionTest, EndsAConnectionThatSendsGarbage) {
  Serve();
  const Namespace ns = Fill(2);
  std::mt19937 random(5);
  for (int round = 0; round < 40; ++round) {
    RawClient client(socket());
    if (round % 2 == 0) {
      client.SendHello();
      ASSERT_TRUE(client.Read().has_value());
    }
    std::string garbage(1 + random() % 3000, '\0');
    for (char& c : garbage) c = static_cast<char>(random());
    if (round % 4 < 2) {  // a well-formed length before it
      const auto size = static_cast<std::uint32_t>(garbage.size());
      garbage.insert(0, std::string(reinterpret_cast<const char*>(&size), 4));
    }
    client.SendBytes(garbage);
    ::shutdown(client.fd(), SHUT_WR);
    EXPECT_TRUE(client.WaitClosed()) << round;
  }
  ExpectServes(ns, 2);
}

TEST_F(SessionTest, RefusesALengthBeyondTheLimitWithoutWaitingForIt) {
  Serve();
  const Namespace ns = Fill(2);
  for (const bool greeted : {false, true}) {
    RawClient client(socket());
    if (greeted) {
      client.SendHello();
      ASSERT_TRUE(client.Read().has_value());
    }
    client.SendBytes(std::string("\xff\xff\xff\x7f", 4));
    const auto reply = client.Read();
    ASSERT_TRUE(reply.has_value());
    EXPECT_EQ(reply->id(), 0u);
    EXPECT_EQ(reply->code(), v1::INVALID_ARGUMENT);
    EXPECT_TRUE(client.WaitClosed());
  }
  ExpectServes(ns, 2);
}

TEST_F(SessionTest, GivesAnUnknownPeerLittleTimeAndLittleMemory) {
  ServerOptions options;
  options.limits.handshake_timeout = absl::Milliseconds(200);
  Serve(options);
  const Namespace ns = Fill(2);
  RawClient silent(socket());
  RawClient half(socket());
  half.SendBytes(std::string("\x40\x00\x00\x00half", 8));
  RawClient big(socket());
  big.SendBytes(std::string("\x00\x00\x10\x00", 4));  // 1 MiB: fine later, not for a Hello
  EXPECT_TRUE(silent.WaitClosed());
  EXPECT_TRUE(half.WaitClosed());
  EXPECT_EQ(big.Read()->code(), v1::INVALID_ARGUMENT);
  EXPECT_TRUE(Eventually([](const ServerStats& stats) { return stats.sessions == 0; }));
  ExpectServes(ns, 2);
}

TEST_F(SessionTest, WantsHelloFirstAndOnce) {
  Serve();
  RawClient early(socket());
  early.SendRequest(StatsRequest(1));
  EXPECT_EQ(early.Read()->code(), v1::FAILED_PRECONDITION);
  EXPECT_TRUE(early.WaitClosed());
  RawClient twice(socket());
  twice.SendHello();
  EXPECT_EQ(twice.Read()->code(), v1::OK);
  twice.SendHello();
  EXPECT_EQ(twice.Read()->code(), v1::INVALID_ARGUMENT);
  EXPECT_TRUE(twice.WaitClosed());
}

TEST_F(SessionTest, NamesBothRangesWhenNoVersionIsShared) {
  Serve();
  RawClient client(socket());
  v1::Request request;
  request.set_id(1);
  request.mutable_hello()->set_min_version(7);
  request.mutable_hello()->set_max_version(9);
  client.SendRequest(request);
  const auto reply = client.Read();
  ASSERT_TRUE(reply.has_value());
  EXPECT_EQ(reply->code(), v1::FAILED_PRECONDITION);
  EXPECT_THAT(reply->message(), HasSubstr("7 to 9"));
}

TEST_F(SessionTest, AnswersAnUnknownRequestAndGoesOn) {
  Serve();
  RawClient client(socket());
  client.SendHello();
  ASSERT_TRUE(client.Read().has_value());
  client.SendBytes(std::string("\x05\x00\x00\x00\x08\x07\xfa\x3e\x00", 9));  // id 7; field 1007, empty
  EXPECT_EQ(client.Read()->code(), v1::UNIMPLEMENTED);
  client.SendRequest(StatsRequest(8));
  EXPECT_EQ(client.Read()->code(), v1::OK);
}

TEST_F(SessionTest, HandsOutMemoryThatClientsCannotChange) {
  Serve();
  Fill(2);
  RawClient client(socket());
  client.SendHello(1 << 20);
  const auto reply = client.Read();
  ASSERT_TRUE(reply.has_value());
  ASSERT_EQ(client.descriptors().size(), 2u);
  const int arena = client.descriptors()[0].get();
  const std::size_t bytes = reply->hello().arena_bytes();
  EXPECT_EQ(::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, arena, 0), MAP_FAILED);
  void* readable = ::mmap(nullptr, bytes, PROT_READ, MAP_SHARED, arena, 0);
  ASSERT_NE(readable, MAP_FAILED);
  EXPECT_NE(::mprotect(readable, 4096, PROT_READ | PROT_WRITE), 0);
  ::munmap(readable, bytes);
  const char byte = 1;
  EXPECT_EQ(::pwrite(arena, &byte, 1, 0), -1);
  EXPECT_NE(::ftruncate(arena, 0), 0);
  EXPECT_NE(::fallocate(arena, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, 4096), 0);
  const protocol::Descriptor again(::open(fmt::format("/proc/self/fd/{}", arena).c_str(), O_RDWR));
  if (again.valid()) {
    EXPECT_EQ(::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, again.get(), 0), MAP_FAILED);
    EXPECT_EQ(::pwrite(again.get(), &byte, 1, 0), -1);
  }
  // Its own staging area it may write to, but not shrink under the daemon.
  const int staging = client.descriptors()[1].get();
  EXPECT_EQ(::pwrite(staging, &byte, 1, 0), 1);
  EXPECT_NE(::ftruncate(staging, 0), 0);
}

class CommitTest : public SessionTest {
 protected:
  void SetUp() override {
    Serve();
    ns_ = Fill(0);
    client_ = std::make_unique<RawClient>(socket());
    client_->SendHello(1 << 20);
    ASSERT_TRUE(client_->Read().has_value());
    auto mapping =
        protocol::Mapping::Create(client_->descriptors()[1].get(), 1 << 20, protocol::Mapping::Access::kReadWrite);
    ASSERT_TRUE(mapping.ok());
    staging_ = std::move(*mapping);
    testing::FillPayload(staging_.writable().first(ns_.spec.payload_bytes()), 1, 0);
  }

  v1::Request Commit(std::uint64_t offset, std::uint64_t length, std::uint64_t checksum) {
    v1::Request request;
    request.set_id(++id_);
    v1::Commit* commit = request.mutable_commit();
    protocol::ToWire(ns_.id, commit->mutable_ns());
    protocol::ToWire(ns_.id, commit->mutable_parent());
    commit->set_tokens(protocol::TokensToWire(testing::Prompt(1)));
    commit->set_staging_offset(offset);
    commit->set_length(length);
    commit->set_checksum(checksum);
    return request;
  }

  v1::Code Send(const v1::Request& request) {
    client_->SendRequest(request);
    const auto reply = client_->Read();
    return reply.has_value() ? reply->code() : v1::UNKNOWN;
  }

  std::uint64_t Checksum() { return protocol::PayloadChecksum(staging_.bytes().first(ns_.spec.payload_bytes())); }

  Namespace ns_;
  std::unique_ptr<RawClient> client_;
  protocol::Mapping staging_;
  std::uint64_t id_ = 1;
};

TEST_F(CommitTest, RefusesWhatLiesOutsideTheStagingArea) {
  const std::uint64_t length = ns_.spec.payload_bytes();
  for (const std::uint64_t offset :
       {(std::uint64_t{1} << 20) - 4096, std::uint64_t{1} << 20, ~std::uint64_t{0}, ~std::uint64_t{0} - length + 1}) {
    EXPECT_EQ(Send(Commit(offset, length, Checksum())), v1::INVALID_ARGUMENT) << offset;
  }
  EXPECT_EQ(Send(Commit(0, ~std::uint64_t{0}, Checksum())), v1::INVALID_ARGUMENT);
  EXPECT_EQ(Send(Commit(0, length - 1, Checksum())), v1::INVALID_ARGUMENT);
  EXPECT_EQ(Send(Commit(0, 0, Checksum())), v1::INVALID_ARGUMENT);
  ExpectServes(ns_, 0);
}

TEST_F(CommitTest, RefusesAPayloadThatIsNotWhatWasSummed) {
  const std::uint64_t sum = Checksum();
  staging_.writable()[1000] ^= std::byte{1};
  EXPECT_EQ(Send(Commit(0, ns_.spec.payload_bytes(), sum)), v1::INVALID_ARGUMENT);
  ExpectServes(ns_, 0);
  staging_.writable()[1000] ^= std::byte{1};
  EXPECT_EQ(Send(Commit(0, ns_.spec.payload_bytes(), sum)), v1::OK);
  testing::FillPayload(staging_.writable().first(ns_.spec.payload_bytes()), 9, 9);  // afterwards: its own affair
  ExpectServes(ns_, 1);
}

TEST_F(CommitTest, RefusesTokensThatAreNotWhole) {
  v1::Request request = Commit(0, ns_.spec.payload_bytes(), Checksum());
  request.mutable_commit()->set_tokens("12345");
  EXPECT_EQ(Send(request), v1::INVALID_ARGUMENT);
}

TEST_F(SessionTest, AnswersBeyondItsLimitsAtOnce) {
  ServerOptions options;
  options.limits.outstanding_bytes = 2000;
  Serve(options);
  RawClient client(socket());
  client.SendHello();
  ASSERT_TRUE(client.Read().has_value());
  v1::Request request;
  request.set_id(2);
  request.mutable_match()->set_tokens(std::string(3000, 'x'));
  client.SendRequest(request);
  EXPECT_EQ(client.Read()->code(), v1::RESOURCE_EXHAUSTED);
  client.SendRequest(StatsRequest(3));
  EXPECT_EQ(client.Read()->code(), v1::OK);
}

TEST_F(SessionTest, LeasesNoMoreThanOneClientMay) {
  ServerOptions options;
  options.limits.leased_blocks = 3;
  Serve(options);
  const Namespace ns = Fill(5);
  RawClient client(socket());
  client.SendHello();
  ASSERT_TRUE(client.Read().has_value());
  client.SendRequest(AcquireRequest(2, ns, 5));
  const auto first = client.Read();
  ASSERT_TRUE(first.has_value());
  EXPECT_EQ(first->acquire().blocks_size(), 3);
  client.SendRequest(AcquireRequest(3, ns, 5));
  EXPECT_EQ(client.Read()->code(), v1::RESOURCE_EXHAUSTED);
  ExpectServes(ns, 3);
  v1::Request release;
  release.set_id(4);
  release.mutable_release_lease()->set_lease(first->acquire().lease());
  client.SendRequest(release);
  client.SendRequest(AcquireRequest(5, ns, 2));
  EXPECT_EQ(client.Read()->acquire().blocks_size(), 2);
}

TEST_F(SessionTest, RefusesOneClientTooMany) {
  ServerOptions options;
  options.limits.clients = 1;
  Serve(options);
  auto first = std::make_unique<RawClient>(socket());
  first->SendHello();
  ASSERT_TRUE(first->Read().has_value());
  RemoteStoreOptions remote;
  remote.socket_path = socket();
  const auto second = RemoteStore::Connect(remote);
  EXPECT_TRUE(absl::IsResourceExhausted(second.status())) << second.status();
  EXPECT_THAT(std::string(second.status().message()), HasSubstr("limits.clients"));
  first.reset();
  EXPECT_TRUE(Eventually([&](const ServerStats&) { return RemoteStore::Connect(remote).ok(); }));
}

TEST_F(SessionTest, GrantsStagingWithinTheTotal) {
  ServerOptions options;
  options.limits.staging_per_client = 3 << 20;
  options.limits.staging_total = 4 << 20;
  Serve(options);
  auto first = std::make_unique<RawClient>(socket());
  first->SendHello(64 << 20);
  EXPECT_EQ(first->Read()->hello().staging_bytes(), 3u << 20);
  RawClient second(socket());
  second.SendHello(64 << 20);
  EXPECT_EQ(second.Read()->hello().staging_bytes(), 1u << 20);
  RawClient third(socket());
  third.SendHello(64 << 20);
  EXPECT_EQ(third.Read()->hello().staging_bytes(), 0u);
  EXPECT_EQ(third.descriptors().size(), 1u);
  first.reset();
  EXPECT_TRUE(Eventually([](const ServerStats& stats) { return stats.staging_bytes == 1u << 20; }));
}

TEST_F(SessionTest, CutsOffAClientThatDoesNotReadButKeepsItsLeases) {
  ServerOptions options;
  options.limits.outgoing_bytes = 64 << 10;
  Serve(options);
  const Namespace ns = Fill(4);
  auto client = std::make_unique<RawClient>(socket());
  client->SendHello();
  ASSERT_TRUE(client->Read().has_value());
  client->SendRequest(AcquireRequest(2, ns, 4));
  ASSERT_EQ(client->Read()->acquire().blocks_size(), 4);
  const auto frame = protocol::EncodeFrame(StatsRequest(3));
  std::string many;
  for (int i = 0; i < 50; ++i) many += *frame;
  // Replies pile up in the socket, then in the daemon, then it stops serving; what is sent it still takes in.
  for (int i = 0; i < 400; ++i) ASSERT_TRUE(client->SendBytes(many));
  ExpectServes(ns, 4);
  EXPECT_TRUE(client->WaitClosed());
  EXPECT_TRUE(Eventually([](const ServerStats& stats) { return stats.sessions == 1; }));
  EXPECT_EQ(server_->server->stats().leased_blocks, 4u) << "the client may still be reading them";
  client.reset();
  EXPECT_TRUE(Eventually([](const ServerStats& stats) { return stats.leased_blocks == 0 && stats.sessions == 0; }));
  ExpectServes(ns, 4);
}

TEST_F(SessionTest, TakesBackEverythingWhenAClientGoes) {
  Serve();
  const Namespace ns = Fill(4);
  ASSERT_TRUE(Eventually([](const ServerStats& stats) { return stats.sessions == 0; }));
  auto client = std::make_unique<RawClient>(socket());
  client->SendHello(1 << 20);
  ASSERT_TRUE(client->Read().has_value());
  client->SendRequest(AcquireRequest(2, ns, 4));
  ASSERT_EQ(client->Read()->acquire().blocks_size(), 4);
  EXPECT_EQ(server_->store->Stats()->leased_blocks, 4u);
  for (std::uint64_t id = 3; id < 20; ++id) client->SendRequest(AcquireRequest(id, ns, 4));  // answers unread
  client.reset();
  EXPECT_TRUE(Eventually([](const ServerStats& stats) {
    return stats.sessions == 0 && stats.leased_blocks == 0 && stats.staging_bytes == 0 && stats.operations == 0;
  }));
  EXPECT_EQ(server_->store->Stats()->leased_blocks, 0u);
}

TEST_F(SessionTest, StopsWithClientsConnectedAndLeasesHeld) {
  Serve();
  const Namespace ns = Fill(4);
  const auto store = Connect();
  const auto lease = testing::AcquireAll(store.get(), ns.id, testing::Prompt(4));
  ASSERT_TRUE(lease.ok());
  RawClient idle(socket());
  idle.SendHello();
  ASSERT_TRUE(idle.Read().has_value());
  RawClient silent(socket());
  server_->server->Stop();
  EXPECT_EQ(server_->server->stats().sessions, 0u);
  EXPECT_EQ(server_->server->stats().leased_blocks, 0u);
  EXPECT_TRUE(idle.WaitClosed());
  EXPECT_TRUE(silent.WaitClosed());
  EXPECT_FALSE(RawClient(socket()).connected());
  EXPECT_TRUE(absl::IsUnavailable(store->Stats().status()));
  server_->server->Stop();
}

}  // namespace
}  // namespace kvist::daemon
