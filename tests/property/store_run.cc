#include "tests/property/store_run.h"

#include <array>
#include <bit>
#include <map>
#include <memory>
#include <sstream>

#include "cachestore/io/fault_file_system.h"
#include "cachestore/local_store.h"
#include "cachestore/tier/store_files.h"
#include "fmt/format.h"
#include "tests/conformance/test_chain.h"

namespace kvist::property {
namespace {

constexpr std::array<const char*, 14> kNames = {"commit",  "acquire", "match", "touch", "pin",    "unpin", "drop",
                                                "dropall", "advance", "sweep", "flush", "reopen", "fault", "mend"};
// Never a sum of steps: at the very moment of expiry either answer is right.
constexpr absl::Duration kTtl = absl::Seconds(90 * 60 + 30);
constexpr absl::Duration kStep = absl::Minutes(7);

// Where tiers are to be tight blocks are large, for DRAM has at least 1 MiB.
NamespaceSpec SpecOf(std::uint32_t tenant, bool large = false) {
  NamespaceSpec spec = TestSpec();
  spec.tenant = std::to_string(tenant);
  spec.layers = 2;
  spec.layer_bytes = large ? 12'000 : 1000;
  return spec;
}

std::size_t DepthOf(std::uint32_t path) { return static_cast<std::size_t>(std::bit_width(path)) - 1; }
// The block's ancestor (or itself) that is `depth` blocks from the root.
std::uint32_t Ancestor(std::uint32_t path, std::size_t depth) { return path >> (DepthOf(path) - depth); }

std::vector<TokenId> TokensOf(std::uint32_t path) {
  std::vector<TokenId> tokens;
  for (std::size_t depth = 1; depth <= DepthOf(path); ++depth) {
    const auto block = TestTokens(Ancestor(path, depth), SpecOf(0).block_tokens);
    tokens.insert(tokens.end(), block.begin(), block.end());
  }
  return tokens;
}

class Runner {
 public:
  explicit Runner(const Config& config) : config_(config) {}

  std::string Run(const std::vector<Op>& ops) {
    if (!Reopen()) return fault_;
    for (std::size_t i = 0; i < ops.size(); ++i) {
      Apply(ops[i]);
      if (!fault_.empty()) return fmt::format("operation {} ({}): {}", i, ToText({ops[i]}), fault_);
    }
    faults_.Clear();
    if (!Reopen()) return fault_;
    for (std::uint32_t tenant = 0; tenant < kTenants; ++tenant) {
      for (std::uint32_t path = 2; path < (2U << kDepthMax); ++path) {
        if (fault_.empty()) Apply({Kind::kAcquire, tenant, path, kDepthMax});
      }
    }
    return fault_.empty() ? "" : "at the end: " + fault_;
  }

 private:
  struct Block {
    absl::Time expires;
    std::uint32_t pins = 0;
  };

  bool exact() const { return config_.mode == Mode::kAmple; }
  void Wrong(std::string what) {
    if (fault_.empty()) fault_ = std::move(what);
  }

  bool Reopen() {
    store_.reset();
    LocalStoreOptions options;
    options.nvme.directory = directory_.path() + "/store";
    options.nvme.segment_bytes = exact() ? 64 << 10 : 256 << 10;  // 8 records and 9
    options.nvme.capacity_bytes = (exact() ? 64 : 9) * options.nvme.segment_bytes;
    options.nvme.file_system = &faults_;
    options.dram_bytes = exact() ? 4 << 20 : 1 << 20;  // all, and a third
    options.ttl = kTtl;
    options.clock = &clock_;
    auto store = LocalStore::Open(options);
    if (!store.ok()) {
      Wrong("open: " + store.status().ToString());
      return false;
    }
    store_ = *std::move(store);
    for (std::uint32_t tenant = 0; tenant < kTenants; ++tenant) {
      const auto ns = store_->OpenNamespace(SpecOf(tenant, !exact()), {});
      if (!ns.ok()) Wrong("open namespace: " + ns.status().ToString());
      if (ns.ok()) namespaces_[tenant] = *ns;
    }
    return fault_.empty();
  }

  Block* Present(std::uint32_t tenant, std::uint32_t path) {
    const auto it = blocks_.find({tenant, path});
    if (it == blocks_.end()) return nullptr;
    return it->second.pins > 0 || it->second.expires > clock_.Wall() ? &it->second : nullptr;
  }
  // Blocks on the way to `path` that may be there (ample: must be), from the root on.
  std::size_t Reachable(std::uint32_t tenant, std::uint32_t path) {
    std::size_t depth = 0;
    while (depth < DepthOf(path) && Present(tenant, Ancestor(path, depth + 1)) != nullptr) ++depth;
    return depth;
  }
  // Of `got` blocks where the model knows `most`.
  void Compare(std::size_t got, std::size_t most) {
    if (got > most || (exact() && got != most)) Wrong(fmt::format("{} blocks, the model has {}", got, most));
  }
  void Use(const Op& op, std::size_t blocks) {
    for (std::size_t depth = 1; depth <= blocks; ++depth) {
      if (Block* block = Present(op.tenant, Ancestor(op.path, depth))) block->expires = clock_.Wall() + kTtl;
    }
  }

  void Apply(const Op& op) {
    switch (op.kind) {
      case Kind::kCommit:
        return Commit(op);
      case Kind::kAcquire:
        return Acquire(op);
      case Kind::kMatch: {
        const auto match = MatchNow(*store_, namespaces_[op.tenant], TokensOf(op.path));
        if (!match.ok()) return Wrong(match.status().ToString());
        return Compare(match->blocks(), Reachable(op.tenant, op.path));
      }
      case Kind::kTouch:
      case Kind::kPin:
      case Kind::kUnpin:
        return Retain(op);
      case Kind::kDrop:
      case Kind::kDropAll:
        return Drop(op);
      case Kind::kAdvance:
        return clock_.Advance(kStep * (1 + op.argument % 8));
      case Kind::kSweep:
        if (const absl::Status s = store_->Sweep(); !s.ok() && config_.mode != Mode::kFaulty) Wrong(s.ToString());
        return;
      case Kind::kFlush:
        if (const absl::Status s = FlushNow(*store_); !s.ok() && exact()) Wrong(s.ToString());
        return;
      case Kind::kReopen:
        leases_.clear();
        faults_.Clear();
        (void)Reopen();
        return;
      case Kind::kFault:
        return Fault(op);
      case Kind::kMend:
        return faults_.Clear();
    }
  }

  void Commit(const Op& op) {
    const std::size_t depth = DepthOf(op.path);
    const auto tokens = TokensOf(op.path);
    const Namespace& ns = namespaces_[op.tenant];
    const KeyHasherKeys keys = Keys(op.tenant, tokens);
    const BlockKey parent = depth == 1 ? ns.id : keys[depth - 2];
    const bool parent_there = depth == 1 || Present(op.tenant, Ancestor(op.path, depth - 1)) != nullptr;
    const auto durability = op.argument % 2 == 0 ? Durability::kMemory : Durability::kDurable;
    const auto key = CommitBlock(*store_, ns, parent, tokens, depth - 1, durability);
    if (key.ok() && !parent_there) return Wrong("committed under a parent that is not there");
    if (!key.ok() && exact() && (parent_there || !absl::IsNotFound(key.status()))) {
      return Wrong(key.status().ToString());
    }
    if (!key.ok() && !parent_there) return;
    // Refused, it may be there all the same: from DRAM, until it is evicted.
    Block& block = blocks_[{op.tenant, op.path}];
    block.expires = clock_.Wall() + kTtl;
  }

  using KeyHasherKeys = std::vector<BlockKey>;
  // The store's own keys, learnt from the secret on its disk.
  KeyHasherKeys Keys(std::uint32_t tenant, const std::vector<TokenId>& tokens) {
    const auto posix = NewPosixFileSystem();
    if (hasher_ == nullptr) {
      StoreDirectory directory;
      directory.path = directory_.path() + "/store";
      hasher_ = std::make_unique<KeyHasher>(ReadSecret(*posix, directory).value());
    }
    return hasher_->Chain(namespaces_[tenant].id, tokens, SpecOf(tenant).block_tokens);
  }

  void Acquire(const Op& op) {
    const auto tokens = TokensOf(op.path);
    const std::size_t most = std::min<std::size_t>(Reachable(op.tenant, op.path), op.argument);
    auto lease = AcquireNow(*store_, namespaces_[op.tenant], tokens, op.argument);
    if (!lease.ok()) return Wrong(lease.status().ToString());
    if (!LeaseIsExact(*lease, namespaces_[op.tenant], tokens)) return Wrong("a hit of other bytes than were put");
    Compare(lease->blocks().size(), most);
    Use(op, exact() ? most : lease->blocks().size());
    // Some are held while other things happen.
    Held& held = leases_[op.path % 3];
    if (!LeaseIsExact(held.lease, held.ns, held.tokens)) Wrong("a lease's bytes changed while it was held");
    held = {*std::move(lease), namespaces_[op.tenant], tokens};
  }

  void Retain(const Op& op) {
    const auto tokens = TokensOf(op.path);
    const NamespaceId& ns = namespaces_[op.tenant].id;
    const std::size_t most = Reachable(op.tenant, op.path);
    const auto done = Await<std::size_t>([&](Done<std::size_t> d) {
      if (op.kind == Kind::kTouch) return store_->Touch(ns, tokens, {}, std::move(d));
      if (op.kind == Kind::kPin) return store_->Pin(ns, tokens, {}, std::move(d));
      store_->Unpin(ns, tokens, {}, std::move(d));
    });
    if (!done.ok() && config_.mode != Mode::kFaulty) return Wrong(done.status().ToString());
    if (done.ok()) Compare(*done, most);
    if (op.kind == Kind::kTouch) return Use(op, most);
    for (std::size_t depth = 1; depth <= most; ++depth) {
      Block& block = *Present(op.tenant, Ancestor(op.path, depth));
      if (op.kind == Kind::kPin) ++block.pins;
      // Where blocks leave by themselves pins are only ever counted up: the model is of what may be there.
      if (op.kind == Kind::kUnpin && exact() && block.pins > 0) --block.pins;
    }
  }

  void Drop(const Op& op) {
    DropRequest request;
    if (op.kind == Kind::kDropAll) {
      request.all = true;
    } else {
      request.ns = namespaces_[op.tenant].id;
    }
    if (!config_.forget_drops) {
      const auto dropped = DropNow(*store_, request);
      if (!dropped.ok() && config_.mode != Mode::kFaulty) return Wrong(dropped.status().ToString());
      if (!dropped.ok()) return;
    }
    std::erase_if(blocks_, [&](const auto& item) { return request.all || item.first.first == op.tenant; });
  }

  void Fault(const Op& op) {
    if (config_.mode != Mode::kFaulty) return;
    constexpr std::array<FaultOp, 5> kOps = {FaultOp::kRead, FaultOp::kWrite, FaultOp::kSyncData, FaultOp::kAllocate,
                                             FaultOp::kRemove};
    FaultRule rule;
    rule.op = kOps[op.argument % kOps.size()];
    rule.effect = static_cast<FaultEffect>(op.path % 4);
    if (rule.effect == FaultEffect::kFlipBit && rule.op != FaultOp::kRead && rule.op != FaultOp::kWrite) {
      rule.effect = FaultEffect::kError;
    }
    rule.path_contains = op.tenant == 0 ? "seg-" : "/namespaces/";
    // A flipped bit in a small file that is read back is not what a device does to all readers alike.
    if (op.tenant != 0) rule.effect = FaultEffect::kError;
    rule.count = 1 + op.path % 3;
    faults_.Add(rule);
  }

  struct Held {
    Lease lease;
    Namespace ns;
    std::vector<TokenId> tokens;
  };

  const Config config_;
  TestDirectory directory_{kMemoryRoot};
  std::unique_ptr<FileSystem> posix_ = NewPosixFileSystem();
  FaultFileSystem faults_{posix_.get(), 1};
  FakeClock clock_;
  std::unique_ptr<KeyHasher> hasher_;
  std::map<std::uint32_t, Namespace> namespaces_;
  std::map<std::pair<std::uint32_t, std::uint32_t>, Block> blocks_;
  std::unique_ptr<LocalStore> store_;
  std::map<std::uint32_t, Held> leases_;  // before the store goes
  std::string fault_;
};

}  // namespace

std::string ToText(const std::vector<Op>& ops) {
  std::string text;
  for (const Op& op : ops) {
    text += fmt::format("{}{} {} {} {}", text.empty() ? "" : "; ", kNames[static_cast<std::size_t>(op.kind)], op.tenant,
                        op.path, op.argument);
  }
  return text;
}

std::vector<Op> FromText(const std::string& text) {
  std::vector<Op> ops;
  std::istringstream all(text);
  for (std::string part; std::getline(all, part, ';');) {
    std::istringstream in(part);
    std::string name;
    Op op;
    in >> name >> op.tenant >> op.path >> op.argument;
    for (std::size_t i = 0; i < kNames.size(); ++i) {
      if (name == kNames[i]) op.kind = static_cast<Kind>(i);
    }
    ops.push_back(op);
  }
  return ops;
}

std::string RunOps(const Config& config, const std::vector<Op>& ops) { return Runner(config).Run(ops); }

}  // namespace kvist::property
