// Names in a shared folder (docs/format.md): how objects are found and how they expire.
//
// Objects lie in buckets by expiry, so that expiring is dropping whole directories. A bucket's name is the time at
// which all in it has expired, so readers need no table of buckets, and stores with different retention share one
// folder. An object's own expiry is its file's modification time. Pure functions; any thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "absl/time/time.h"
#include "cachestore/shared/object_tier.h"

namespace kvist {

inline constexpr std::uint32_t kFolderFormatVersion = 1;

// Wide enough that a lookup has few buckets to try (five for 72 h), narrow enough that expired blocks don't double what
// the folder holds.
inline constexpr absl::Duration kBucketWidth = absl::Hours(24);
// Clocks of different machines differ, and a reader may be under way: a bucket goes this long after its end.
inline constexpr absl::Duration kExpiryGrace = absl::Hours(1);
// Expiries from here on (the year 9999) are "never".
inline constexpr std::int64_t kNeverUnixSeconds = 253'402'300'799;

// The bucket for objects that expire at `expires`: 12 digits, or "never". Names sort by time.
std::string BucketName(absl::Time expires);
// When all in the bucket has expired; InfiniteFuture for "never"; nullopt if it is no bucket's name.
std::optional<absl::Time> ParseBucketName(std::string_view name);

// Within a bucket. The middle part keeps directories small.
std::string NamespacePath(const NamespaceId& ns);
std::string ObjectDirectory(const ObjectName& name);
std::string ObjectPath(const ObjectName& name);

}  // namespace kvist
