// rdma-core's public headers, as those see them who implement them: exported, while the build hides
// everything else.
#pragma once

#pragma GCC visibility push(default)
#include <infiniband/sa.h>
#include <infiniband/verbs.h>
#include <rdma/rdma_cma.h>
#include <rdma/rdma_verbs.h>
#pragma GCC visibility pop
