// A prompt's blocks through the daemon, as a client puts and gets them: what its peers are compared with.
#pragma once

#include <cstddef>
#include <functional>
#include <span>
#include <string>

#include "src/client/remote_store.h"

namespace kvist::bench {

inline constexpr std::size_t kPromptBlocks = 47;

[[noreturn]] void Fail(const std::string& what);
double Seconds(const std::function<void()>& work);

// Grants, fills and commits the blocks that lie one after the other in `source`. Every round is another prompt.
void PutPrompt(RemoteStore* store, const Namespace& ns, int round, std::span<const std::byte> source);
// Acquires them and copies them out.
void GetPrompt(RemoteStore* store, const Namespace& ns, int round, std::span<std::byte> target);

}  // namespace kvist::bench
