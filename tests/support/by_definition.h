#pragma once

#include <c10/core/impl/LocalDispatchKeySet.h>

namespace fem::testing {

// While alive, operators that this thread calls run their definitions in the dtype they are given, and so do their
// gradients: what a whole layer of kernels is compared with.
class ByDefinition {
  const c10::impl::IncludeDispatchKeyGuard redirected_{c10::DispatchKey::TESTING_ONLY_GenericMode};
};

}  // namespace fem::testing
