// Options as JSON, through the visitors that name their fields.
#pragma once

#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string>
#include <type_traits>
#include <vector>

#include "fem/options.h"
#include "util/check.h"
#include "util/nearest.h"

namespace fem {

template <typename Value>
void write_option(nlohmann::json& out, const Value& value) {
  if constexpr (std::is_enum_v<Value>)
    out = spelled(value);
  else if constexpr (std::is_same_v<Value, std::filesystem::path>)
    out = value.string();
  else
    out = value;
}

template <typename Value>
void write_option(nlohmann::json& out, const std::optional<Value>& value) {
  if (value) write_option(out, *value);
}

// "train.steps=1000": a value as --set takes it; the name alone where there is none.
template <typename Value>
std::string setting_text(const std::string& name, const Value& value) {
  nlohmann::json out;
  write_option(out, value);
  return out.empty() ? name : name + "=" + (out.is_string() ? out.get<std::string>() : out.dump());
}

// A visitor that takes its fields from an object. Absent fields keep their values; finish() refuses unknown ones.
class OptionsReader {
 public:
  // whose: "mixer options", for the sentences.
  OptionsReader(std::string whose, const nlohmann::json& in) : whose_(std::move(whose)), in_(in) {
    FEM_CHECK(in.is_object(), whose_, ": expected a JSON object, got ", in.dump());
  }

  template <typename Value>
  void operator()(const char* name, Value& value, const char*) {
    known_.insert(name);
    if (in_.contains(name)) read(name, in_[name], value);
  }

  // A field that is read elsewhere.
  void skip(const char* name) { known_.insert(name); }

  void finish() const {
    for (const auto& [name, value] : in_.items())
      FEM_CHECK(known_.count(name), whose_, ": unknown field \"", name, "\"", did_you_mean(name, known_));
  }

 private:
  using Json = nlohmann::json;

  void expect(bool fits, const char* name, const std::string& expected, const Json& got) const {
    FEM_CHECK(fits, whose_, ": expected ", name, " to be ", expected, ", got ", got.dump());
  }

  void read(const char* name, const Json& in, bool& value) const {
    expect(in.is_boolean(), name, "true or false", in);
    value = in.get<bool>();
  }

  void read(const char* name, const Json& in, int64_t& value) const {
    expect(in.is_number_integer() && (!in.is_number_unsigned() || in.get<uint64_t>() <= INT64_MAX), name, "an integer",
           in);
    value = in.get<int64_t>();
  }

  void read(const char* name, const Json& in, double& value) const {
    expect(in.is_number(), name, "a number", in);
    value = in.get<double>();
  }

  void read(const char* name, const Json& in, std::string& value) const {
    expect(in.is_string(), name, "text", in);
    value = in.get<std::string>();
  }

  void read(const char* name, const Json& in, std::filesystem::path& value) const {
    std::string text;
    read(name, in, text);
    value = text;
  }

  void read(const char* name, const Json& in, std::vector<std::string>& value) const {
    if (in.is_string()) return void(value = {in.get<std::string>()});
    expect(in.is_array(), name, "a list of texts", in);
    value.resize(in.size());
    for (size_t i = 0; i < in.size(); ++i) read(name, in[i], value[i]);
  }

  void read(const char* name, const Json& in, std::vector<double>& value) const {
    expect(in.is_array(), name, "a list of numbers", in);
    value.resize(in.size());
    for (size_t i = 0; i < in.size(); ++i) read(name, in[i], value[i]);
  }

  template <typename Enum>
    requires std::is_enum_v<Enum>
  void read(const char* name, const Json& in, Enum& value) const {
    std::string known;
    for (const auto& [spelling, spelled] : Spelling<Enum>::values) {
      if (in == spelling) return void(value = spelled);
      known += (known.empty() ? "\"" : ", \"") + std::string(spelling) + "\"";
    }
    expect(false, name, "one of " + known, in);
  }

  template <typename Value>
  void read(const char* name, const Json& in, std::optional<Value>& value) const {
    value.reset();
    if (!in.is_null()) read(name, in, value.emplace());
  }

  std::string whose_;
  const Json& in_;
  std::set<std::string> known_;
};

}  // namespace fem
