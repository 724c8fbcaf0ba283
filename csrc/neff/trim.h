// Keeps the cache's directory small and tidy. Removes only files that are named as the cache names
// its own, in directories that nobody else may write to.
#pragma once

#include <cstdint>

#include "support/fd.h"

namespace neuron::neff {

struct Trimmed {
  int64_t files = 0, bytes = 0;                  // executables that are left
  int64_t evicted_files = 0, evicted_bytes = 0;  // removed, the least recently used first
  int64_t stale_files = 0;                       // left behind by processes that died
};

// Removes what dead writers and dead holders of locks left behind; then, if the executables hold
// more than `max_bytes` (not if that is negative), the least recently used until they hold nine
// tenths of it. Others may read, write and trim at the same time: a file that is open stays
// readable. A file's access time is its last use (Cache::Load sets it); one that lies in the
// future, as after the clock was set back, says nothing and counts as the oldest.
Trimmed Trim(const Fd& directory, int64_t max_bytes);

}  // namespace neuron::neff
