// Where the text of a corpus is, and reading it in parts.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace fem {

struct TextFile {
  std::filesystem::path path;
  std::string name;      // its path from the argument that found it
  uint64_t bytes = 0;    // when it was found
  int64_t modified = 0;  // the same, in the file system's clock
  bool named = false;    // by the user; a file found in a folder or by a pattern is passed over if it is not text
};

struct TextFiles {
  std::vector<TextFile> files;  // by a hash of their names: their end is a random share of them
  int64_t hidden = 0;           // passed over in folders
};

// Files, folders (all their files, at any depth) and patterns (* ? [ ] { } and ** for any depth), each file once. What
// lies in the folder `without` does not count.
TextFiles find_text_files(const std::vector<std::string>& arguments, const std::filesystem::path& without);

// Bytes [begin, end) of a file: whole documents, or a part of a long one.
struct TextPart {
  std::filesystem::path path;
  uint64_t begin = 0, end = 0;
  int64_t line = 1;             // the first one's number, for .jsonl
  bool begins_document = true;  // false if the part before it ends inside the same document

  uint64_t bytes() const { return end - begin; }
};

// What a file holds, under whatever path it lies.
struct TextSource {
  std::string name;      // of the file, for people
  std::string checksum;  // of its content and of how that is read
};

struct TextParts {
  std::vector<TextPart> parts;
  std::vector<TextSource> sources;  // the files behind them, in their order
  int64_t skipped = 0;              // files that are not UTF-8 text
};

// Reads every file once and cuts it at line ends into parts of about 2 MB. Text is UTF-8 without zero bytes.
TextParts cut_into_parts(const std::vector<TextFile>& files);

// The parts before and after the last `fraction` of the bytes, cut at a line where one is near.
std::pair<std::vector<TextPart>, std::vector<TextPart>> split_parts(const std::vector<TextPart>& parts,
                                                                    double fraction);

// Calls read(text, begins) for the documents of a part; the lines of a .jsonl are documents with a "text" each.
void for_each_document(const TextPart& part, const std::function<void(std::string_view text, bool begins)>& read);

}  // namespace fem
