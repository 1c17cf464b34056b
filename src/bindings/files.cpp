// Which folder holds a model, and which may.
#include "bindings/library.h"
#include "fem/io/model_folder.h"

namespace fem {

void register_files(torch::Library& library) {
  library.def("model_folder(str folder) -> str",
              [](const std::string& folder) { return model_folder(folder).string(); });
  library.def("best_model_folder(str folder) -> str",
              [](const std::string& folder) { return best_model_folder(folder).string(); });
  library.def("check_free_for_model(str folder) -> ()",
              [](const std::string& folder) { check_free_for_model(folder); });
}

}  // namespace fem
