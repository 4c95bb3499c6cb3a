#include "cachestore/shared/directory_tier.h"

#include <atomic>
#include <utility>

#include "cachestore/await.h"
#include "cachestore/shared/deadline_pool.h"
#include "cachestore/shared/shared_folder.h"
#include "fmt/format.h"
#include "spdlog/spdlog.h"

namespace kvist {
namespace {

// What operations leave behind, shared with threads that may be stuck in one.
struct Outcomes {
  std::atomic<std::uint64_t> read_bytes = 0;
  std::atomic<std::uint64_t> written_objects = 0;
  std::atomic<std::uint64_t> written_bytes = 0;
  std::atomic<std::uint64_t> errors = 0;
  std::atomic<std::uint64_t> corrupt_objects = 0;
  std::atomic<bool> failing = false;  // since the last answer without an error
};

bool IsNoFault(const absl::Status& status) {
  return status.ok() || absl::IsNotFound(status) || absl::IsCancelled(status);
}

class DirectoryTierImpl final : public ObjectTier {
 public:
  DirectoryTierImpl(const DirectoryTierOptions& options, const std::optional<KeyHasher::Secret>& own)
      : options_(options),
        name_(fmt::format("shared folder {}", options.directory)),
        own_(own),
        secret_(own.value_or(KeyHasher::Secret{})),
        folder_(std::make_shared<SharedFolder>(
            options.file_system != nullptr ? options.file_system : std::shared_ptr<FileSystem>(NewPosixFileSystem()),
            SharedFolder::Options{
                .directory = options.directory, .sync = options.sync, .bucket_list_age = options.bucket_list_age})),
        outcomes_(std::make_shared<Outcomes>()),
        pool_({.name = name_,
               .threads = options.threads,
               .close_timeout = options.close_timeout,
               .health = options.health}) {}

  ~DirectoryTierImpl() override { folder_->Abandon(); }

  absl::Status Init() {
    auto entered = std::make_shared<absl::StatusOr<KeyHasher::Secret>>(absl::UnknownError(""));
    const absl::Status status = AwaitStatus([&](DoneStatus done) {
      pool_.Run(
          Urgency::kReader, options_.open_timeout,
          [folder = folder_, own = own_, entered] {
            *entered = folder->Enter(own);
            return entered->status();
          },
          std::move(done));
    });
    if (status.ok()) {
      secret_ = **entered;
      return status;
    }
    const bool final = absl::IsFailedPrecondition(status) || absl::IsDataLoss(status);
    if (final || !own_) {
      return absl::Status(status.code(), fmt::format("{}: {}", name_, std::string(status.message())));
    }
    outcomes_->failing = true;
    spdlog::warn("{}: {}; going on without, it will be tried again", name_, std::string(status.message()));
    return absl::OkStatus();
  }

  const KeyHasher::Secret& secret() const override { return secret_; }

  void Get(const ObjectName& name, OwnedBytes into, absl::Duration timeout, DoneStatus done) override {
    Run(
        Urgency::kReader, timeout,
        [folder = folder_, name, into = std::move(into), now = Now(), outcomes = outcomes_] {
          const absl::Status status = folder->Get(name, into.bytes, now);
          if (status.ok()) outcomes->read_bytes += into.bytes.size();
          if (absl::IsDataLoss(status)) ++outcomes->corrupt_objects;
          return status;
        },
        std::move(done));
  }

  void CountPresent(const NamespaceId& ns, std::vector<BlockKey> chain, absl::Duration timeout,
                    Done<std::size_t> done) override {
    auto count = std::make_shared<std::size_t>(0);
    Run(
        Urgency::kReader, timeout,
        [folder = folder_, ns, chain = std::move(chain), now = Now(), count] {
          const absl::StatusOr<std::size_t> present = folder->CountPresent(ns, chain, now);
          if (present.ok()) *count = *present;
          return present.status();
        },
        [count, done = std::move(done)](const absl::Status& status) mutable {
          status.ok() ? std::move(done)(*count) : std::move(done)(status);
        });
  }

  void Put(const ObjectName& name, ObjectRecord record, absl::Time expires, DoneStatus done) override {
    Run(
        Urgency::kBackground, options_.write_timeout,
        [folder = folder_, name, record = std::move(record), expires, now = Now(), outcomes = outcomes_] {
          const absl::Status status = folder->Put(name, record, expires, now);
          if (status.ok()) {
            ++outcomes->written_objects;
            outcomes->written_bytes += record.header.size() + record.payload.bytes.size();
          }
          return status;
        },
        std::move(done));
  }

  void Refresh(const ObjectName& name, absl::Time expires, DoneStatus done) override {
    Run(
        Urgency::kBackground, options_.write_timeout,
        [folder = folder_, name, expires, now = Now()] { return folder->Refresh(name, expires, now); },
        std::move(done));
  }

  void DropNamespace(const NamespaceId& ns, DoneStatus done) override {
    Run(
        Urgency::kReader, options_.drop_timeout, [folder = folder_, ns] { return folder->DropNamespace(ns); },
        std::move(done));
  }

  void Sweep(DoneStatus done) override {
    Run(
        Urgency::kBackground, options_.sweep_timeout, [folder = folder_, now = Now()] { return folder->Sweep(now); },
        std::move(done));
  }

  ObjectTierStats Stats() const override {
    const DeadlinePool::Counters pool = pool_.counters();
    return {.available = folder_->entered() && !pool.given_up && !outcomes_->failing,
            .read_bytes = outcomes_->read_bytes,
            .written_objects = outcomes_->written_objects,
            .written_bytes = outcomes_->written_bytes,
            .timeouts = pool.timeouts,
            .errors = outcomes_->errors,
            .corrupt_objects = outcomes_->corrupt_objects};
  }

 private:
  absl::Time Now() const { return options_.clock->Wall(); }

  // Enters the folder first where that hasn't been possible yet.
  void Run(Urgency urgency, absl::Duration timeout, DeadlinePool::Work work, DoneStatus done) {
    pool_.Run(
        urgency, timeout,
        [folder = folder_, own = own_, work = std::move(work)]() mutable -> absl::Status {
          if (!folder->entered()) {
            if (const absl::Status status = folder->Enter(own).status(); !status.ok()) {
              return absl::UnavailableError(std::string(status.message()));
            }
          }
          return work();
        },
        // Not on the pool's stuck threads, so it may log.
        [this, done = std::move(done)](absl::Status status) mutable {
          Note(status);
          std::move(done)(std::move(status));
        });
  }

  // Logs the first of a row of failures, and their end.
  void Note(const absl::Status& status) {
    if (absl::IsDeadlineExceeded(status) || pool_.counters().given_up) return;  // the pool's own affair
    if (absl::IsDataLoss(status)) {
      spdlog::warn("{}: removed an object that does not verify: {}", name_, std::string(status.message()));
      return;
    }
    if (!IsNoFault(status)) {
      ++outcomes_->errors;
      if (!outcomes_->failing.exchange(true)) spdlog::warn("{}: {}", name_, std::string(status.message()));
    } else if (outcomes_->failing.exchange(false)) {
      spdlog::info("{} works again", name_);
    }
  }

  const DirectoryTierOptions options_;
  const std::string name_;
  const std::optional<KeyHasher::Secret> own_;
  KeyHasher::Secret secret_;
  const std::shared_ptr<SharedFolder> folder_;
  const std::shared_ptr<Outcomes> outcomes_;
  DeadlinePool pool_;  // last: its completions use the rest
};

}  // namespace

absl::StatusOr<std::unique_ptr<ObjectTier>> DirectoryTier::Open(const DirectoryTierOptions& options,
                                                                const std::optional<KeyHasher::Secret>& own) {
  if (options.directory.empty()) return absl::InvalidArgumentError("the shared folder is not set; name one");
  if (options.clock == nullptr) return absl::InvalidArgumentError("DirectoryTierOptions::clock is not set");
  auto tier = std::make_unique<DirectoryTierImpl>(options, own);
  if (absl::Status status = tier->Init(); !status.ok()) return status;
  return tier;
}

}  // namespace kvist
