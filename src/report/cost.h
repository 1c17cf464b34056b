// fem experiment cost as a study and as a claim: ratios to plain attention, round by round.
#pragma once

#include "report/claim.h"

namespace fem {

Study cost_study(const std::filesystem::path& folder);

// The published ratios are those that the experiment prints.
Claim cost_claim();

}  // namespace fem
