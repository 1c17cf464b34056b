#include "io/json.h"

#include <nlohmann/json.hpp>
#include <set>
#include <vector>

#include "io/read_file.h"
#include "util/check.h"

namespace fem {
namespace {

// What the parser asks of every level and key as it comes upon them.
template <typename Json>
class Bounds {
 public:
  explicit Bounds(const std::string& whose) : whose_(whose) {}

  bool operator()(int depth, typename Json::parse_event_t event, const Json& parsed) {
    using Event = typename Json::parse_event_t;
    if (event == Event::object_start || event == Event::array_start)
      FEM_CHECK(depth < kDeepestJson, whose_, ": expected JSON of at most ", kDeepestJson, " levels, got more");
    if (event == Event::object_start) open_objects_.emplace_back();
    if (event == Event::object_end) open_objects_.pop_back();
    // nlohmann would keep the last one silently.
    if (event == Event::key)
      FEM_CHECK(open_objects_.back().insert(parsed.template get_ref<const std::string&>()).second, whose_, ": key ",
                parsed.dump(), " appears twice");
    return true;
  }

 private:
  const std::string& whose_;
  std::vector<std::set<std::string>> open_objects_;
};

// "line 1, column 5: unexpected ..." of the library's "[json.exception.parse_error.101] parse error at line 1, ...",
// without the text it last read, which may be of any length.
std::string reason_of(const std::exception& error) {
  std::string reason = error.what();
  for (const std::string_view lead : {"] ", "parse error at "})
    if (const size_t at = reason.find(lead); at != std::string::npos) reason.erase(0, at + lead.size());
  return reason.substr(0, std::min(reason.find("; last read"), size_t{200}));
}

const nlohmann::json& field_of(const nlohmann::json& object, const char* name, const std::string& whose) {
  FEM_CHECK(object.is_object() && object.contains(name), whose, ": expected an object with \"", name, "\", got ",
            object.dump().substr(0, 80));
  return object[name];
}

}  // namespace

template <typename Json>
Json parse_json(std::string_view text, const std::string& whose) {
  Bounds<Json> bounds(whose);
  try {
    return Json::parse(text, std::ref(bounds));
  } catch (const nlohmann::json::exception& error) {
    FEM_CHECK(false, whose, ": expected JSON, but ", reason_of(error));
  }
}

template <typename Json>
std::optional<Json> json_if_whole(std::string_view text) {
  try {
    return parse_json<Json>(text, "");
  } catch (const c10::Error&) {
    return std::nullopt;
  }
}

template nlohmann::json parse_json(std::string_view, const std::string&);
template nlohmann::ordered_json parse_json(std::string_view, const std::string&);
template std::optional<nlohmann::json> json_if_whole(std::string_view);
template std::optional<nlohmann::ordered_json> json_if_whole(std::string_view);

nlohmann::json read_json(const std::filesystem::path& path, const std::string& whose) {
  return parse_json(read_file(path, whose), whose + ": " + path.string());
}

int64_t integer_in(const nlohmann::json& object, const char* name, const std::string& whose) {
  const nlohmann::json& value = field_of(object, name, whose);
  FEM_CHECK(value.is_number_integer() && (!value.is_number_unsigned() || value.get<uint64_t>() <= INT64_MAX), whose,
            ": expected \"", name, "\" to be an integer, got ", value.dump().substr(0, 80));
  return value.get<int64_t>();
}

double number_in(const nlohmann::json& object, const char* name, const std::string& whose) {
  const nlohmann::json& value = field_of(object, name, whose);
  FEM_CHECK(value.is_number(), whose, ": expected \"", name, "\" to be a number, got ", value.dump().substr(0, 80));
  return value.get<double>();
}

}  // namespace fem
