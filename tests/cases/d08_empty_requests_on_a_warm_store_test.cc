// D8: empty and mistaken requests get a clean answer and cost the warm store nothing.
#include "tests/conformance/local_store_factory.h"

namespace kvist {
namespace {

TEST(EmptyRequestsOnAWarmStore, AreAnsweredAndTheStoreStillHits) {
  LocalStoreFactory factory;
  auto store = factory.OpenLocal({});
  ASSERT_TRUE(store.ok()) << store.status();
  const Namespace ns = *(*store)->OpenNamespace(TestSpec(), {});
  const auto tokens = TestChain(1, 4);
  ASSERT_TRUE(CommitChain(**store, ns, tokens, Durability::kDurable).ok());

  EXPECT_EQ(MatchedBlocks(**store, ns, {}), 0u);
  EXPECT_TRUE(AcquireNow(**store, ns, {})->empty());
  EXPECT_TRUE(AcquireNow(**store, ns, tokens, 0)->empty());
  const auto commit_nothing = [&](const NamespaceId& id, WriteGrant grant) {
    CommitRequest request{.ns = id, .parent = id, .tokens = {}, .grant = std::move(grant)};
    return Await<BlockKey>([&](Done<BlockKey> done) { (*store)->Commit(std::move(request), {}, std::move(done)); })
        .status();
  };
  EXPECT_TRUE(absl::IsInvalidArgument(commit_nothing(ns.id, *(*store)->Grant(ns.id))));
  EXPECT_TRUE(absl::IsInvalidArgument(commit_nothing(ns.id, WriteGrant())));

  const Namespace missing{.id = {.hi = 1, .lo = 1}, .spec = TestSpec()};
  EXPECT_TRUE(absl::IsNotFound(MatchNow(**store, missing, tokens).status()));
  EXPECT_TRUE(absl::IsNotFound(AcquireNow(**store, missing, tokens).status()));
  EXPECT_TRUE(absl::IsNotFound((*store)->Grant(missing.id).status()));
  EXPECT_TRUE(absl::IsNotFound(commit_nothing(missing.id, WriteGrant())));
  EXPECT_TRUE(absl::IsNotFound(DropNow(**store, {.ns = missing.id, .tenant = {}, .all = false}).status()));
  EXPECT_TRUE(absl::IsInvalidArgument(DropNow(**store, {}).status()));
  EXPECT_EQ(DropNow(**store, {.ns = {}, .tenant = "nobody", .all = false})->blocks, 0u);

  const auto lease = AcquireNow(**store, ns, tokens);
  ASSERT_TRUE(lease.ok());
  EXPECT_EQ(lease->blocks().size(), 4u);
  EXPECT_TRUE(LeaseIsExact(*lease, ns, tokens));
}

}  // namespace
}  // namespace kvist
