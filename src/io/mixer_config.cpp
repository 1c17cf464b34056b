#include "io/mixer_config.h"

#include <nlohmann/json.hpp>
#include <set>
#include <type_traits>

#include "util/check.h"

namespace fem {
namespace {

using nlohmann::json;

template <typename Value>
void write(json& out, const Value& value) {
  if constexpr (std::is_enum_v<Value>) {
    out = spelled(value);
  } else {
    out = value;
  }
}

template <typename Value>
void write(json& out, const std::optional<Value>& value) {
  if (value) write(out, *value);
}

void expect(bool fits, const char* name, const char* expected, const json& got) {
  FEM_CHECK(fits, "mixer options: expected ", name, " to be ", expected, ", got ", got.dump());
}

void read(const char* name, const json& in, bool& value) {
  expect(in.is_boolean(), name, "true or false", in);
  value = in.get<bool>();
}

void read(const char* name, const json& in, int64_t& value) {
  expect(in.is_number_integer() && (!in.is_number_unsigned() || in.get<uint64_t>() <= INT64_MAX), name, "an integer",
         in);
  value = in.get<int64_t>();
}

void read(const char* name, const json& in, double& value) {
  expect(in.is_number(), name, "a number", in);
  value = in.get<double>();
}

template <typename Enum>
  requires std::is_enum_v<Enum>
void read(const char* name, const json& in, Enum& value) {
  std::string known;
  for (const auto& [spelling, spelled] : Spelling<Enum>::values) {
    if (in == spelling) return void(value = spelled);
    known += (known.empty() ? "\"" : ", \"") + std::string(spelling) + "\"";
  }
  expect(false, name, ("one of " + known).c_str(), in);
}

template <typename Value>
void read(const char* name, const json& in, std::optional<Value>& value) {
  value.reset();
  if (!in.is_null()) read(name, in, value.emplace());
}

}  // namespace

json to_json(const MixerOptions& options) {
  json out = json::object();
  visit_mixer_options(options, [&](const char* name, const auto& value, const char*) { write(out[name], value); });
  return out;
}

MixerOptions mixer_options_from_json(const json& in) {
  FEM_CHECK(in.is_object(), "mixer options: expected a JSON object, got ", in.dump());
  FEM_CHECK(
      in.value("softmax_backend", json()) != "flash",
      "mixer options: softmax_backend \"flash\" is the flash-attn package's, which needs CUDA and cannot carry the "
      "free energy: expected \"auto\" (our fused kernels), \"fused\", \"reference\" or \"sdpa\"");
  MixerOptions options;
  std::set<std::string> known;
  visit_mixer_options(options, [&](const char* name, auto& value, const char*) {
    known.insert(name);
    if (in.contains(name)) read(name, in[name], value);
  });
  for (const auto& [name, value] : in.items())
    FEM_CHECK(known.count(name), "mixer options: unknown field \"", name, "\"");
  return options;
}

}  // namespace fem
