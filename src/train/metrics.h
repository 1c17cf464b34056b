#pragma once

#include <c10/util/Exception.h>

#include <filesystem>
#include <optional>

#include "io/jsonl.h"
#include "train/event_file.h"

namespace fem {

// What a run reports while it goes: metrics.jsonl, a line for each record, and the same numbers for TensorBoard.
class Metrics {
 public:
  // Goes on after step: lines of later steps, which a resumed run makes again, are dropped.
  Metrics(const std::filesystem::path& run, int64_t step);

  // values: {"loss": 2.1, ...}; kind: "train" or "validation". A record that cannot be written (a full disk) is lost
  // with one warning for all of them: it must not end a run.
  void record(const std::string& kind, int64_t step, const Json& values);

 private:
  void warn(const c10::Error& error);

  std::filesystem::path path_;
  std::optional<EventFile> events_;  // until a write fails: its readers end at the first broken record
  bool warned_ = false;
};

std::filesystem::path metrics_path(const std::filesystem::path& run);

// A measure after each validation of a run: [[100, 0.5], [200, 0.7], ...].
Json validations_of(const std::filesystem::path& run, const std::string& measure);

// The last step that a run has reported, 0 if there is none; reads no more than the end of the file.
int64_t last_step(const std::filesystem::path& run);

}  // namespace fem
