// JSON Lines: one object a line, appended and never rewritten.
#pragma once

#include <filesystem>
#include <nlohmann/json.hpp>
#include <vector>

namespace fem {

using Json = nlohmann::ordered_json;

// Appends one whole line and flushes it; creates the file and its folder.
void append_jsonl(const std::filesystem::path& path, const Json& line);

// Every complete line, none if there is no file. A line cut short by a crash is passed over: its work is done again.
std::vector<Json> read_jsonl(const std::filesystem::path& path);

}  // namespace fem
