#include "train/same_run.h"

#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <vector>

#include "util/check.h"

namespace fem {
namespace {

using nlohmann::json;

constexpr const char* kFiles = "files";
constexpr const char* kOtherwise = "; give the old value, or start another run with another --out";

std::vector<std::string> column(const json& files, const char* name) {
  std::vector<std::string> values;
  for (const json& file : files) values.push_back(file.is_object() ? file.value(name, json()).dump() : "");
  return values;
}

// "a.txt", or "a.txt and 3 more".
std::string some_of(const std::vector<std::string>& names) {
  return names.front() + (names.size() > 1 ? " and " + std::to_string(names.size() - 1) + " more" : "");
}

// The names of the files whose content is nowhere in others.
std::vector<std::string> names_without(const json& files, const json& others) {
  const std::vector<std::string> content = column(files, "checksum"), known = column(others, "checksum"),
                                 names = column(files, "name");
  std::multiset<std::string> left(known.begin(), known.end());
  std::vector<std::string> found;
  for (size_t i = 0; i < content.size(); ++i) {
    const auto same = left.find(content[i]);
    same == left.end() ? found.push_back(names[i]) : void(left.erase(same));
  }
  return found;
}

// What happened to the files, empty if nothing did: another path is no difference.
std::string change_of(const json& before, const json& after) {
  if (column(before, "checksum") == column(after, "checksum")) return "";
  std::vector<std::string> gone = names_without(before, after), added = names_without(after, before), changed;
  for (const std::string& name : std::vector(gone))
    if (std::erase(added, name) > 0) {
      std::erase(gone, name);
      changed.push_back(name);
    }
  std::string text;
  const auto tell = [&](const std::vector<std::string>& names, const char* what) {
    if (!names.empty()) text += (text.empty() ? "" : ", ") + some_of(names) + what;
  };
  tell(changed, " changed");
  tell(gone, " is no longer there");
  tell(added, " was not there");
  return text.empty() ? "the files come in another order, which goes by their names" : text;
}

void check_same_files(const json& before, const json& after) {
  for (const auto& [kind, files] : after.items()) {
    const std::string change = change_of(before.value(kind, json::array()), files);
    FEM_CHECK(change.empty(), "train: --resume goes on with the same run, but its ", kind, " text is another: ", change,
              "; give the old files, or start another run with another --out");
  }
}

}  // namespace

void check_same_run(const json& saved, const json& now, const json& defaults) {
  static const std::set<std::string> free{"/train/checkpoint_every", "/train/keep_checkpoints", "/train/log_every",
                                          "/train/timeout_seconds",  "/train/validate_every",   "/train/micro_batch",
                                          "/train/recompute",        "/train/patience",         "/train/validate_first",
                                          "/train/init_from"};
  json others = now;
  others.erase(kFiles);
  const json before = saved.flatten(), after = others.flatten(), usual = defaults.flatten();
  const auto check_one = [&](const std::string& name) {
    const json was = before.value(name, json()), is = after.value(name, json());
    const bool unknown_then = !before.contains(name) && usual.contains(name) && usual[name] == is;
    const bool grew = name == "/train/steps" && was.is_number() && is >= was;
    FEM_CHECK(grew || unknown_then || free.count(name) || was == is, "train: --resume goes on with the same run, but ",
              name.substr(1), " was ", was.dump(), " and is now ", is.dump(), kOtherwise);
  };
  check_one("/task");  // whose other fields need not be compared
  const json before_files = saved.contains(kFiles) && saved[kFiles].is_object() ? saved[kFiles] : json::object();
  if (now.contains(kFiles)) check_same_files(before_files, now[kFiles]);
  for (const auto& [name, value] : after.items()) check_one(name);
}

}  // namespace fem
