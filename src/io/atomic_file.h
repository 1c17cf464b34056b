#pragma once

#include <filesystem>
#include <functional>
#include <iosfwd>

namespace fem {

// Calls write on a temporary beside path, syncs it and renames it to path: whatever happens, path holds the old file or
// the whole new one. A failed write (full disk, missing folder, exception in write) throws and leaves no temporary.
void write_atomically(const std::filesystem::path& path, const std::function<void(std::ostream&)>& write);

// Gives a folder of synced files its name, which must be free, and syncs the names themselves.
void rename_folder(const std::filesystem::path& from, const std::filesystem::path& to);

}  // namespace fem
