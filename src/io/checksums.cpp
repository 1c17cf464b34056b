#include "io/checksums.h"

#include <fstream>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "io/atomic_file.h"
#include "io/checkpoint_folders.h"
#include "util/check.h"
#include "util/checksum.h"

namespace fem {
namespace {

namespace fs = std::filesystem;

constexpr const char* kChecksums = "checksums";
constexpr size_t kDigits = 32, kBlock = 1 << 16;
constexpr std::string_view kGap = "  ";  // between checksum and name

// All but the list itself.
std::vector<std::string> files_in(const fs::path& folder) {
  std::vector<std::string> names;
  std::error_code none;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder, none))
    if (entry.path().filename() != kChecksums) names.push_back(entry.path().filename().string());
  return names;
}

// Nothing if the file cannot be read to its end.
std::optional<std::string> checksum_of(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  Checksum checksum;
  std::vector<char> block(kBlock);
  while (file.read(block.data(), kBlock) || file.gcount() > 0)
    checksum.add({block.data(), static_cast<size_t>(file.gcount())});
  return file.eof() && !file.bad() ? std::optional(checksum.text()) : std::nullopt;
}

// Name -> checksum; strict, so that a damaged list never vouches for a damaged file. Nothing if it is damaged.
std::map<std::string, std::string> read_checksums(const fs::path& folder) {
  std::ifstream file(folder / kChecksums);
  std::map<std::string, std::string> known;
  for (std::string line; std::getline(file, line);) {
    const bool whole = line.size() > kDigits + kGap.size() && line.substr(kDigits, kGap.size()) == kGap &&
                       line.find_first_not_of("0123456789abcdef") == kDigits && !file.eof() &&
                       line.find('/') == std::string::npos &&  // of this folder, not /dev/zero
                       known.emplace(line.substr(kDigits + kGap.size()), line.substr(0, kDigits)).second;
    if (!whole) return {};
  }
  return known;
}

std::string damage_of_list(const fs::path& folder) { return (folder / kChecksums).string() + " is damaged"; }

std::string damage_of_file(const fs::path& path, const std::string& expected) {
  const std::optional<std::string> checksum = checksum_of(path);
  if (!checksum) return path.string() + " is missing or cannot be read";
  return *checksum == expected ? "" : path.string() + " is damaged: it is not what was saved (by checksums beside it)";
}

}  // namespace

void write_checksums(const fs::path& folder) {
  std::map<std::string, std::string> known;
  for (const std::string& name : files_in(folder)) {
    const std::optional<std::string> checksum = checksum_of(folder / name);
    FEM_CHECK(checksum, "checksums: ", (folder / name).string(), " was written, but cannot be read again");
    known[name] = *checksum;
  }
  write_atomically(folder / kChecksums, [&](std::ostream& file) {
    for (const auto& [name, checksum] : known) file << checksum << kGap << name << "\n";
  });
}

bool has_checksums(const fs::path& folder) {
  std::error_code none;
  return fs::exists(folder / kChecksums, none);
}

std::string damage_in(const fs::path& folder) {
  if (!has_checksums(folder)) return folder.string() + " has no checksums";
  const auto known = read_checksums(folder);
  if (known.empty()) return damage_of_list(folder);
  for (const auto& [name, checksum] : known)
    if (const std::string damage = damage_of_file(folder / name, checksum); !damage.empty()) return damage;
  // A list that was cut short would leave the rest unchecked.
  for (const std::string& name : files_in(folder))
    if (!known.contains(name)) return (folder / name).string() + " is not among the checksums beside it";
  return "";
}

void check_file(const fs::path& path) {
  const fs::path folder = path.parent_path();
  if (!has_checksums(folder)) return;
  const auto known = read_checksums(folder);
  const auto found = known.find(path.filename().string());
  const std::string damage = found == known.end() ? damage_of_list(folder) : damage_of_file(path, found->second);
  FEM_CHECK(damage.empty(), "model folder: ", damage, remedy_for_checkpoint(folder));
}

}  // namespace fem
