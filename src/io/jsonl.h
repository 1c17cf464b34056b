// JSON Lines: one object a line, appended and never rewritten.
#pragma once

#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace fem {

using Json = nlohmann::ordered_json;

// Appends one whole line and flushes it; creates the file and its folder. What a crash left of a line at the end goes.
void append_jsonl(const std::filesystem::path& path, const Json& line);

// Throws a sentence about the option that named the file if nothing could be appended to it: before the work, not
// after.
void expect_appendable(const std::filesystem::path& path, const std::string& option);

// Every line, none if there is no file. A last line without its end, which a crash cut short, is passed over: its work
// is done again. Any other that is not an object is an error that names it.
std::vector<Json> read_jsonl(const std::filesystem::path& path);

}  // namespace fem
