#include "cachestore/namespace_table.h"

#include "fmt/format.h"

namespace kvist {

NamespaceTable::NamespaceTable(NvmeTier* nvme, absl::Duration default_ttl) : nvme_(nvme), default_ttl_(default_ttl) {
  {
    absl::MutexLock lock(&mutex_);
    for (const NvmeTier::StoredNamespace& stored : nvme_->Namespaces()) {
      Add(stored.ns, stored.ttl.value_or(default_ttl_));
    }
  }
  nvme_->ForEachLoaded([this](const NvmeBlock& block) {
    absl::ReaderMutexLock lock(&mutex_);
    const auto it = known_.find(block.ns);
    if (it == known_.end()) return;
    KnownNamespace& known = *it->second;
    const absl::Time used = absl::FromUnixSeconds(block.expires_unix_s) - known.ttl.load();
    absl::Time newest = known.last_used.load();
    while (newest < used && !known.last_used.compare_exchange_weak(newest, used)) {
    }
  });
}

KnownNamespace* NamespaceTable::Add(const Namespace& ns, absl::Duration ttl) {
  auto known = std::make_unique<KnownNamespace>();
  known->ns = ns;
  known->shape = {.block_tokens = ns.spec.block_tokens, .layers = ns.spec.layers, .layer_bytes = ns.spec.layer_bytes};
  known->ttl = ttl;
  return (known_[ns.id] = std::move(known)).get();
}

absl::StatusOr<KnownNamespace*> NamespaceTable::Open(const NamespaceSpec& spec, const NamespaceOptions& options,
                                                     const NamespaceId& id) {
  absl::MutexLock lock(&mutex_);
  const auto it = known_.find(id);
  if (it != known_.end()) {
    KnownNamespace* known = it->second.get();
    if (known->ns.spec != spec) return absl::InternalError("namespace digest collision");
    if (!options.ttl || *options.ttl == known->ttl.load()) return known;
    if (const absl::Status status = nvme_->PutNamespace({known->ns, options.ttl}); !status.ok()) return status;
    known->ttl = *options.ttl;
    return known;
  }
  const Namespace ns{.id = id, .spec = spec};
  if (const absl::Status status = nvme_->PutNamespace({ns, options.ttl}); !status.ok()) return status;
  return Add(ns, options.ttl.value_or(default_ttl_));
}

absl::StatusOr<KnownNamespace*> NamespaceTable::Find(const NamespaceId& id) const {
  absl::ReaderMutexLock lock(&mutex_);
  const auto it = known_.find(id);
  if (it == known_.end()) {
    return absl::NotFoundError(fmt::format("unknown namespace {}; open it first", id.ToHex()));
  }
  return it->second.get();
}

std::vector<KnownNamespace*> NamespaceTable::All() const {
  absl::ReaderMutexLock lock(&mutex_);
  std::vector<KnownNamespace*> all;
  all.reserve(known_.size());
  for (const auto& [id, known] : known_) all.push_back(known.get());
  return all;
}

}  // namespace kvist
