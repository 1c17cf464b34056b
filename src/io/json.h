// JSON from outside: the one way in. Nothing below 64 levels, no key twice, no number beyond a double; what is refused
// is refused by a sentence with its line and column (docs/decisions/0026-outside-bytes.md).
#pragma once

#include <cstdint>
#include <filesystem>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>

namespace fem {

constexpr int kDeepestJson = 64;  // printing, copying and comparing go down by recursion

// whose: what errors begin with, "tokenizer: a/tokenizer.json".
template <typename Json = nlohmann::json>
Json parse_json(std::string_view text, const std::string& whose);

// None of what parse_json refuses: a line that a crash cut short.
template <typename Json = nlohmann::json>
std::optional<Json> json_if_whole(std::string_view text);

// parse_json of a file, whose name errors have after `whose`.
nlohmann::json read_json(const std::filesystem::path& path, const std::string& whose);

// A field that has to be there, of the type that it has to have.
int64_t integer_in(const nlohmann::json& object, const char* name, const std::string& whose);
double number_in(const nlohmann::json& object, const char* name, const std::string& whose);

}  // namespace fem
