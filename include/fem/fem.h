// The Free Energy Mixer: everything public.
#pragma once

#include "fem/io/mixer_file.h"
#include "fem/io/safetensors.h"
#include "fem/mixer.h"
#include "fem/ops/channel_read.h"
#include "fem/ops/decay_scan.h"
#include "fem/ops/gated_read.h"
#include "fem/ops/linear_read.h"
#include "fem/ops/modulate.h"
#include "fem/ops/project.h"
#include "fem/ops/rotary.h"
#include "fem/ops/softmax_read.h"
#include "fem/ops/ssm_read.h"
#include "fem/options.h"
#include "fem/state.h"
#include "fem/version.h"
