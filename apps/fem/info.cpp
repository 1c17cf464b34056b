#include <ATen/Context.h>
#include <ATen/Parallel.h>
#include <torch/headeronly/version.h>

#include <CLI/CLI.hpp>
#include <iostream>

#include "commands.h"
#include "fem/version.h"

namespace fem {

void add_info_command(CLI::App& app) {
  CLI::App* info = app.add_subcommand("info", "Print versions, instruction set, threads and BLAS");
  info->footer(
      "Kernels follow torch's choice; ATEN_CPU_CAPABILITY=default, avx2 or avx512 forces a lower one of those built.");
  info->callback([] {
    std::cout << "fem       " << version() << "\n"
              << "torch     " << TORCH_VERSION << "\n"
              << "built     " << built_instruction_sets() << "\n"
              << "kernels   " << instruction_set() << "\n"
              << "bfloat16  " << bfloat16_products() << "\n"
              << "threads   " << at::get_num_threads() << "\n"
              << "BLAS      "
              << (at::hasMKL()      ? "MKL"
                  : at::hasLAPACK() ? "LAPACK"
                                    : "none")
              << "\n";
  });
}

}  // namespace fem
