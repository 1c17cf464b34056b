#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

namespace fem {

struct CsvRow {
  int64_t number;  // from 1, which is the header; empty lines are not counted
  std::vector<std::string> cells;
};

// What was found of the file as a whole.
struct CsvFile {
  char separator = ',';
  std::string checksum;  // of the text, unpacked
};

// Every row of a file of text, packed by gzip or not. The separator is the one of , ; and tab that the first line has
// most of; quotes are RFC 4180's, and spaces around a cell are not part of it. Rows of another width than the first,
// quotes that are not closed, bytes that are no text and damaged gzip throw one sentence.
CsvFile for_each_csv_row(const std::filesystem::path& path,
                         const std::function<void(const CsvRow& row, char separator)>& on_row);

// A cell as it is written, in quotes if it needs any.
std::string csv_cell(const std::string& text);

// A cell as a person may see it in a sentence: printable, and not long.
std::string shown(const std::string& cell);

}  // namespace fem
