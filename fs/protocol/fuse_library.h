// The one place that includes libfuse, with the API version that this front is written for.
#pragma once

#define FUSE_USE_VERSION 314
#include <fuse_lowlevel.h>
