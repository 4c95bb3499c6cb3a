#include "cachestore/tier/store_opening.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include "cachestore/tier/removal_log.h"
#include "cachestore/tier/store_files.h"
#include "fmt/format.h"
#include "spdlog/spdlog.h"

namespace kvist {
namespace {

// Where no record lives, as the index has it. Format 1 kept no account of what was removed, so all of it counts.
absl::StatusOr<std::vector<RemovedExtent>> Format1Leftovers(BlockIndex& index) {
  std::map<std::uint64_t, SegmentEntry> segments;
  absl::Status read = index.ForEachSegment([&](std::uint64_t id, const SegmentEntry& entry) { segments[id] = entry; });
  if (!read.ok()) return read;
  std::map<std::uint64_t, std::vector<std::pair<std::uint64_t, std::uint64_t>>> live;
  read = index.ForEachBlock([&](const BlockKey&, const BlockEntry& e) {
    const auto it = segments.find(e.extent.segment);
    if (it == segments.end() || it->second.generation != e.extent.generation) return true;
    live[e.extent.segment].emplace_back(e.extent.offset, e.extent.offset + e.record_bytes);
    return true;
  });
  if (!read.ok()) return read;
  std::vector<RemovedExtent> gaps;
  for (const auto& [id, entry] : segments) {
    auto& extents = live[id];
    std::sort(extents.begin(), extents.end());
    extents.emplace_back(entry.bytes, entry.bytes);
    std::uint64_t at = 0;
    for (const auto& [begin, end] : extents) {
      if (begin > at) gaps.push_back({RemovedExtent::Kind::kFormat1, id, entry.generation, at, begin});
      at = std::max(at, end);
    }
  }
  return gaps;
}

}  // namespace

absl::Status OpenSecretAndIndex(NvmeCore& core) {
  absl::StatusOr<KeyHasher::Secret> secret = ReadSecret(*core.fs, core.directory);
  const bool have = secret.ok();
  if (!have && !absl::IsNotFound(secret.status()) && !absl::IsDataLoss(secret.status())) return secret.status();
  const absl::Status fault = secret.status();
  BlockIndexOptions options;
  options.directory = core.directory.index();
  options.create = !core.directory.complete;
  options.env = core.options.index_env;
  if (!have && options.create) {
    // A store that never was whole: it has no keys yet that a new secret could orphan.
    secret = core.options.secret ? *core.options.secret : NewSecret();
    if (!secret.ok()) return secret.status();
  }
  if (have && core.options.secret && *core.options.secret != *secret) {
    return absl::FailedPreconditionError(
        fmt::format("store {} was made with another key secret than the one asked for, so that its keys mean nothing "
                    "here; choose an empty store directory, it takes over the secret",
                    core.directory.path));
  }
  if (secret.ok()) options.secret = *secret;
  absl::StatusOr<std::unique_ptr<BlockIndex>> index = BlockIndex::Open(options);
  if (!index.ok()) return index.status();
  core.index = *std::move(index);
  core.secret = core.index->secret();
  if (have && *secret == core.secret) return absl::OkStatus();
  if (have) {
    return absl::DataLossError(
        fmt::format("{} and the index in {} are of different stores; put the right one back, or run `kvist fsck {} "
                    "--repair`, which "
                    "goes by SECRET",
                    core.directory.secret(), core.directory.index(), core.directory.path));
  }
  if (core.directory.format == kStoreFormatVersion) {
    spdlog::error("{}: restored from its copy in the index; check the disk", std::string(fault.message()));
  }
  return WriteSecret(*core.fs, core.directory, core.secret);
}

absl::Status UpgradeFromFormat1(NvmeCore& core) {
  if (core.directory.format != 1) return absl::OkStatus();
  spdlog::info("store {}: upgrading from format 1 to {}", core.directory.path, kStoreFormatVersion);
  std::map<NamespaceId, NamespaceEntry> namespaces;
  absl::Status read = core.index->ForEachNamespace(
      [&](const NamespaceId& id, NamespaceEntry entry) { namespaces[id] = std::move(entry); });
  if (!read.ok()) return read;
  for (const auto& [id, entry] : namespaces) {
    if (absl::Status s = WriteNamespaceFile(*core.fs, core.directory, id, entry); !s.ok()) return s;
  }
  const absl::StatusOr<std::vector<RemovedExtent>> leftovers = Format1Leftovers(*core.index);
  if (!leftovers.ok()) return leftovers.status();
  return WriteRemovalLog(*core.fs, core.directory.removals(), *leftovers);
}

absl::Status LoadNamespaces(NvmeCore& core) {
  absl::StatusOr<NamespaceFiles> files = ReadNamespaceFiles(*core.fs, core.directory);
  if (!files.ok()) return files.status();
  std::map<NamespaceId, NamespaceEntry> copies;
  absl::Status read =
      core.index->ForEachNamespace([&](const NamespaceId& id, NamespaceEntry entry) { copies[id] = std::move(entry); });
  if (!read.ok()) return read;

  IndexBatch batch;
  std::set<NamespaceId> half_dropped;
  for (auto& [id, entry] : files->good) {
    const auto copy = copies.find(id);
    const std::uint64_t in_index = copy == copies.end() ? 0 : copy->second.dropped_through;
    if (entry.dropped_through > in_index) half_dropped.insert(id);
    if (entry.dropped_through < in_index) {  // the file could not be written then
      entry.dropped_through = in_index;
      if (absl::Status s = WriteNamespaceFile(*core.fs, core.directory, id, entry); !s.ok()) return s;
    }
    if (copy == copies.end() || copy->second != entry) batch.put_namespaces.emplace_back(id, entry);
  }
  for (const auto& [id, entry] : copies) {
    if (files->good.contains(id)) continue;
    const auto bad = files->bad.find(id);
    spdlog::error("namespace {}: {}; its file is restored from the index; check the disk", id.ToHex(),
                  bad == files->bad.end() ? "its file is gone" : std::string(bad->second.message()));
    if (absl::Status s = WriteNamespaceFile(*core.fs, core.directory, id, entry); !s.ok()) return s;
    files->good[id] = entry;
    files->bad.erase(id);
  }
  for (const auto& [id, why] : files->bad) {
    spdlog::error("{}; there is no copy: its blocks cannot be used until it is opened again",
                  std::string(why.message()));
  }
  // Undone in one batch with the copy that says so: interrupted again, it is found again.
  if (!half_dropped.empty()) {
    read = core.index->ForEachBlock([&](const BlockKey& key, const BlockEntry& entry) {
      if (half_dropped.contains(entry.ns)) batch.delete_blocks.push_back(key);
      return true;
    });
    if (!read.ok()) return read;
  }
  if (absl::Status s = core.index->Apply(batch, IndexSync::kYes); !s.ok()) return s;
  absl::MutexLock lock(&core.mutex);
  for (auto& [id, entry] : files->good) {
    core.summary.SetNamespace(id, entry.spec.payload_bytes(), entry.spec.block_tokens);
    core.namespaces[id] = std::move(entry);
  }
  return absl::OkStatus();
}

}  // namespace kvist
