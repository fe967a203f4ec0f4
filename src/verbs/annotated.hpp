// For programs that are built with MSan or TSan (base/annotate.hpp).
#pragma once

#include "verbs/abi.hpp"

namespace feroce::verbs {

bool wants_annotations();
void fill_annotated_operations(ibv_context_ops& ops);
// Around calls of the data path that have tables of their own.
void note_post();
void note_completion();

}  // namespace feroce::verbs
