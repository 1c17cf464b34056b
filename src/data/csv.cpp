#include "data/csv.h"

#include <csv.h>

#include <algorithm>
#include <memory>

#include "data/packed_file.h"
#include "util/check.h"
#include "util/checksum.h"
#include "util/grouped.h"

namespace fem {
namespace {

namespace fs = std::filesystem;

constexpr size_t kLargestCell = 1 << 20;  // bytes; beyond it a quote is open
constexpr size_t kMostCells = 1 << 17;    // of a row

// libcsv calls back from C, which no exception may pass: cells are gathered here, and rows are handed on afterwards.
struct Gathered {
  std::vector<std::string> cells;
  std::vector<std::vector<std::string>> rows;
  bool too_wide = false;

  static void on_cell(void* bytes, size_t size, void* self) {
    auto& own = *static_cast<Gathered*>(self);
    if (own.cells.size() >= kMostCells) return void(own.too_wide = true);
    own.cells.emplace_back(static_cast<const char*>(bytes), size);
  }
  static void on_row(int, void* self) {
    auto& own = *static_cast<Gathered*>(self);
    own.rows.push_back(std::move(own.cells));
    own.cells.clear();
  }
};

struct FreeParser {
  void operator()(csv_parser* parser) const {
    csv_free(parser);
    delete parser;
  }
};

char separator_of(std::string_view text) {
  const std::string_view line = text.substr(0, text.find_first_of("\r\n"));
  char best = ',';
  int64_t most = 0;
  for (const char candidate : {',', ';', '\t'}) {
    int64_t count = 0;
    bool quoted = false;
    for (const char c : line) {
      if (c == '"') quoted = !quoted;
      count += !quoted && c == candidate;
    }
    if (count > most) {
      most = count;
      best = candidate;
    }
  }
  return best;
}

// libcsv takes away tabs around a cell as it does spaces, which would swallow empty cells between tabs.
int is_space(unsigned char c) { return c == ' '; }

}  // namespace

std::string csv_cell(const std::string& text) {
  if (text.find_first_of(",;\t\"\r\n") == std::string::npos) return text;
  std::string quoted(2 * text.size() + 2, '\0');
  quoted.resize(csv_write(quoted.data(), quoted.size(), text.data(), text.size()));
  return quoted;
}

std::string shown(const std::string& cell) {
  constexpr size_t kLongest = 40;
  std::string text = "'";
  for (const char c : cell.substr(0, kLongest)) text += static_cast<unsigned char>(c) < 0x20 || c == 0x7f ? '?' : c;
  return text + (cell.size() > kLongest ? "...'" : "'");
}

CsvFile for_each_csv_row(const fs::path& path, const std::function<void(const CsvRow&, char)>& on_row) {
  PackedFile file(path, "csv");
  auto* const made = new csv_parser;
  FEM_CHECK(csv_init(made, CSV_STRICT | CSV_STRICT_FINI) == 0, "csv: the parser cannot be started");
  const std::unique_ptr<csv_parser, FreeParser> parser(made);
  csv_set_space_func(parser.get(), is_space);

  CsvFile found;
  Checksum checksum;
  Gathered gathered;
  int64_t number = 0;
  size_t width = 0;
  const auto hand_on = [&] {
    FEM_CHECK(!gathered.too_wide, "csv: ", path.string(), ": row ", grouped(number + 1), " has more than ",
              grouped(kMostCells), " cells; is it a table?");
    for (std::vector<std::string>& cells : gathered.rows) {
      if (number++ == 0) width = cells.size();
      FEM_CHECK(cells.size() == width, "csv: ", path.string(), ": row ", grouped(number), " has ", cells.size(),
                " cells, but the first row ", width, "; every row needs as many");
      on_row({number, std::move(cells)}, found.separator);
    }
    gathered.rows.clear();
  };
  const auto check_quotes = [&](bool good) {
    FEM_CHECK(good && csv_get_buffer_size(parser.get()) <= kLargestCell, "csv: ", path.string(), ": after row ",
              grouped(number),
              " there is a quote that is not closed, or one in the middle of a cell; double the "
              "quotes inside a quoted cell");
  };

  std::string_view bytes = file.read();
  FEM_CHECK(!bytes.empty(), "csv: ", path.string(), " is empty; expected a header and rows of numbers");
  if (bytes.starts_with("\xEF\xBB\xBF")) {
    checksum.add(bytes.substr(0, 3));
    bytes.remove_prefix(3);
  }
  found.separator = separator_of(bytes);
  csv_set_delim(parser.get(), static_cast<unsigned char>(found.separator));
  for (; !bytes.empty(); bytes = file.read()) {
    FEM_CHECK(bytes.find('\0') == std::string_view::npos, "csv: ", path.string(),
              " is not text: it has zero bytes; expected a CSV file in UTF-8, packed by gzip or not");
    checksum.add(bytes);
    const size_t parsed =
        csv_parse(parser.get(), bytes.data(), bytes.size(), Gathered::on_cell, Gathered::on_row, &gathered);
    hand_on();
    check_quotes(parsed == bytes.size());
  }
  check_quotes(csv_fini(parser.get(), Gathered::on_cell, Gathered::on_row, &gathered) == 0);
  hand_on();
  FEM_CHECK(number > 0, "csv: ", path.string(), " has only empty lines; expected a header and rows of numbers");
  found.checksum = checksum.text();
  return found;
}

}  // namespace fem
