// ObjectTier: the storage that the stores of several machines share. Immutable objects, each one block's record
// (tier/block_record.h), named by namespace and key. Writers need no coordination: whoever writes a name writes the
// same bytes, and readers see all of an object or nothing.
//
// Storage far away can be slow, or never answer. So each operation has a deadline, after which it completes with
// DeadlineExceeded although a thread may still be stuck in it; whatever memory such an operation may still touch is
// kept alive by its `owner`, however long that takes.
//
// Thread safety: any thread. A completion runs once, on a thread of the tier's or on the caller's before the call
// returns; it must not block. All have run when the destructor returns, and the destructor does not wait for storage.
// Errors: NotFound (absent or expired), DataLoss (did not verify; the object is gone now), DeadlineExceeded,
// Unavailable (the storage is down, or has been given up for a while: at once), ResourceExhausted (full, or too much
// waiting).
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "cachestore/key/digest.h"
#include "cachestore/key/key_hasher.h"
#include "cachestore/prefix_store.h"

namespace kvist {

struct ObjectName {
  NamespaceId ns;
  BlockKey key;
};

// Memory, and what keeps it from being used for anything else.
struct OwnedBytes {
  std::span<std::byte> bytes;
  std::shared_ptr<const void> owner;
};

// A sealed and stamped record in two pieces, so that the payload need not be copied.
struct ObjectRecord {
  std::vector<std::byte> header;
  OwnedBytes payload;  // up to the record's end, padding included
};

struct ObjectTierStats {
  bool available = false;
  std::uint64_t read_bytes = 0;
  std::uint64_t written_objects = 0;
  std::uint64_t written_bytes = 0;
  std::uint64_t timeouts = 0;
  std::uint64_t errors = 0;
  std::uint64_t corrupt_objects = 0;
};

class ObjectTier {
 public:
  virtual ~ObjectTier() = default;

  // The secret of all keys in this storage.
  virtual const KeyHasher::Secret& secret() const = 0;

  // Reads an object of exactly into.bytes and verifies it: header, name, every layer. (Token ids are for the caller,
  // who knows them.)
  virtual void Get(const ObjectName& name, OwnedBytes into, absl::Duration timeout, DoneStatus done) = 0;

  // How many of a chain's first blocks there are. May err where single objects are missing: Get has the last word.
  virtual void CountPresent(const NamespaceId& ns, std::vector<BlockKey> chain, absl::Duration timeout,
                            Done<std::size_t> done) = 0;

  // Publishes a record that expires at `expires`.
  virtual void Put(const ObjectName& name, ObjectRecord record, absl::Time expires, DoneStatus done) = 0;

  // Makes an existing object live until `expires` at least.
  virtual void Refresh(const ObjectName& name, absl::Time expires, DoneStatus done) = 0;

  // Removes a namespace's objects: none is found once `done` has run. What another writer adds meanwhile may stay.
  virtual void DropNamespace(const NamespaceId& ns, DoneStatus done) = 0;

  // Reclaims the space of what is expired or dropped, and what dead writers left: some of it per call.
  virtual void Sweep(DoneStatus done) = 0;

  virtual ObjectTierStats Stats() const = 0;
};

}  // namespace kvist
