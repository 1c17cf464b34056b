// What one folder has found, whatever wrote it, in the shape of a sweep.
#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "train/sweep.h"

namespace fem {

// The course of one run: measure -> step -> value.
struct Curve {
  std::vector<std::string> labels;  // of its cell
  int64_t seed = 0;
  std::map<std::string, std::map<int64_t, double>> measures;
};

struct Study {
  Study() = default;
  Study(Study&&) = default;  // no copies: rows point to lines
  Study& operator=(Study&&) = default;

  std::string kind, place;  // "fem sweep", and the folder as it was named
  std::string command;      // that makes the runs again; empty if the records do not say
  std::string again;        // the command that makes the page of this study alone
  std::vector<std::string> axes;
  std::vector<Json> lines;     // as results.jsonl of a sweep has them
  std::vector<SweepRow> rows;  // cell by cell
  std::string measure;         // that the choice goes by
  bool larger_is_better = false;
  bool timed = false;         // its seeds are the rounds of a measurement: medians count, and there is no average
  std::vector<Curve> curves;  // of the reported runs
};

// Makes rows, axes and measure out of lines.
void complete(Study& study);

// The studies of these folders: a sweep, an argmax experiment, language models (experiments/lm); runs of fem train make
// one study together. A folder is known by its content, and one that is nothing of these is a sentence.
std::vector<Study> gather(const std::vector<std::filesystem::path>& places);

}  // namespace fem
