// Directories that hold executables: opened only if nobody else may write to them, and used through
// their descriptors, so that they cannot be exchanged after the check.
#pragma once

#include <sys/stat.h>

#include <filesystem>
#include <string>
#include <vector>

#include "support/fd.h"

namespace neuron::neff {

inline constexpr mode_t kOthersWrite = S_IWGRP | S_IWOTH;

// The directory `name` in `parent` (a descriptor, or AT_FDCWD), made with mode 0700 if `create`.
// Not ok with errno set if there is none; with `why` set too if executables in it cannot be
// trusted.
Fd OpenDirectory(int parent, const std::string& name, bool create, std::string* why = nullptr);

// Makes the directories above `directory`. A failure shows when the directory itself is opened.
void MakeParents(const std::filesystem::path& directory);

// Without slashes at its end: with them a path would follow a symbolic link.
std::filesystem::path WithoutSlashes(std::filesystem::path directory);

// Why executables in this directory cannot be used; empty if they can, or if there is nothing of
// this name yet. Makes nothing.
std::string WhyUnsafe(const std::filesystem::path& directory);

// Names in a directory, without "." and "..", in any order; empty if it cannot be read.
std::vector<std::string> NamesIn(const Fd& directory);

}  // namespace neuron::neff
