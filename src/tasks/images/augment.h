// Training pictures, each varied by a pure function of the seed and its row.
#pragma once

#include "data/images.h"
#include "data/order.h"
#include "tasks/images/options.h"
#include "train/task.h"

namespace fem {

struct ImageRows {
  at::Tensor pixels;   // [B, C, H, W] float32, from 0 to 255
  at::Tensor targets;  // [B, classes] float32, each a distribution
};

ImageRows augmented_rows(const LabelledImages& images, int64_t classes, const ImageDataOptions& options,
                         const EpochOrder& order, const Rows& rows);

// A picture [C, H, W] moved and mirrored as a number says.
at::Tensor varied(const at::Tensor& pixels, const ImageDataOptions& options, uint64_t number);

}  // namespace fem
