// What a record says of the program that made it.
#pragma once

#include "io/jsonl.h"

namespace fem {

Json versions_json();  // of fem and torch, the kernels in use and the threads

}  // namespace fem
