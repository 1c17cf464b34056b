// A report as one JSON document: all that scripts/report.py shows is in it, computed and worded.
#pragma once

#include <string>
#include <vector>

#include "io/jsonl.h"
#include "report/board.h"

namespace fem {

// command: what made it, to be shown.
Json report_document(const std::vector<Study>& studies, const std::vector<Claim>& claims, const std::string& command);

}  // namespace fem
