#include <c10/util/StringUtil.h>
#include <fnmatch.h>
#include <glob.h>

#include <algorithm>
#include <set>

#include "data/documents.h"
#include "util/check.h"
#include "util/hash.h"

namespace fem {
namespace {

namespace fs = std::filesystem;

constexpr const char* kWildcards = "*?[{";

// The folder of a pattern that has no wildcard in it.
fs::path fixed_part(const std::string& pattern) {
  const size_t slash = pattern.substr(0, pattern.find_first_of(kWildcards)).rfind('/');
  return slash == std::string::npos ? fs::path() : fs::path(pattern.substr(0, slash + 1));
}

std::vector<fs::path> matches_of(const std::string& pattern) {
  glob_t found = {};
  std::vector<fs::path> paths;
  if (::glob(pattern.c_str(), GLOB_BRACE, nullptr, &found) == 0)
    paths.assign(found.gl_pathv, found.gl_pathv + found.gl_pathc);
  ::globfree(&found);
  return paths;
}

class Finder {
 public:
  explicit Finder(const fs::path& without) {
    std::error_code ignored;
    without_ = fs::weakly_canonical(without, ignored);
  }

  void add_argument(const std::string& argument) {
    const size_t before = found.files.size() + repeated_;
    std::error_code ignored;
    if (fs::is_directory(argument, ignored)) {
      add_folder(argument, argument, "");
    } else if (fs::exists(argument, ignored) || argument.find_first_of(kWildcards) == std::string::npos) {
      add_file(argument, fs::path(argument).filename().string(), /*named=*/true);
    } else if (argument.find("**") != std::string::npos) {
      std::string flat = argument;
      c10::ReplaceAll(flat, "**/", "*");
      const fs::path base = fixed_part(argument);
      add_folder(base.empty() ? "." : base, base, flat);
    } else {
      add_matches(argument);
    }
    FEM_CHECK(found.files.size() + repeated_ > before, "corpus: no file matches ", argument,
              "; give files, folders or patterns of UTF-8 text");
  }

  TextFiles found;

 private:
  void add_matches(const std::string& pattern) {
    const fs::path base = fixed_part(pattern);
    for (const fs::path& path : matches_of(pattern)) {
      if (fs::is_directory(path))
        add_folder(path, base, "");
      else
        add_file(path, path.lexically_relative(base.empty() ? "." : base).string(), /*named=*/false);
    }
  }

  // Every file below a folder whose path matches the pattern, if there is one; * crosses folders in it.
  void add_folder(const fs::path& folder, const fs::path& base, const std::string& pattern) {
    std::error_code error;
    auto entry = fs::recursive_directory_iterator(folder, error);
    for (; !error && entry != fs::end(entry); entry.increment(error)) {
      std::error_code ignored;
      if (entry->path().filename().string().starts_with('.')) {
        ++found.hidden;
        entry.disable_recursion_pending();
      } else if (entry->is_directory(ignored)) {
        if (fs::weakly_canonical(entry->path(), ignored) == without_) entry.disable_recursion_pending();
      } else if (entry->is_regular_file(ignored)) {
        const fs::path path = base.empty() ? entry->path().lexically_relative(folder) : entry->path();
        if (pattern.empty() || ::fnmatch(pattern.c_str(), path.c_str(), 0) == 0)
          add_file(path, path.lexically_relative(base).string(), /*named=*/false);
      }
    }
    FEM_CHECK(!error, "corpus: the folder ", folder.string(), " cannot be read: ", error.message());
  }

  void add_file(const fs::path& path, const std::string& name, bool named) {
    std::error_code error;
    const fs::path canonical = fs::canonical(path, error);
    FEM_CHECK(!error, "corpus: ", path.string(), " cannot be read: ", error.message());
    const bool regular = fs::is_regular_file(canonical, error);
    FEM_CHECK(regular || !named, "corpus: ", path.string(), " is not a file with text");
    if (!regular) return;
    if (!known_.insert(canonical).second) {
      ++repeated_;
      return;
    }
    const uint64_t bytes = fs::file_size(canonical, error);
    FEM_CHECK(!error, "corpus: ", path.string(), " cannot be read: ", error.message());
    const int64_t modified = fs::last_write_time(canonical, error).time_since_epoch().count();
    FEM_CHECK(!error, "corpus: ", path.string(), " cannot be read: ", error.message());
    found.files.push_back({canonical, name, bytes, modified, named});
  }

  fs::path without_;
  std::set<fs::path> known_;
  size_t repeated_ = 0;
};

}  // namespace

TextFiles find_text_files(const std::vector<std::string>& arguments, const fs::path& without) {
  Finder finder(without);
  for (const std::string& argument : arguments) finder.add_argument(argument);
  std::sort(finder.found.files.begin(), finder.found.files.end(), [](const TextFile& a, const TextFile& b) {
    return std::pair(splitmix64(fnv1a(a.name)), a.path) < std::pair(splitmix64(fnv1a(b.name)), b.path);
  });
  return finder.found;
}

}  // namespace fem
