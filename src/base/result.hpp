// The caller's mistake as an errno with one sentence that says why. Mistakes of a peer or of the
// network are not errors but data (Nak, WcStatus, DropReason). The type is public, the macro not.
#pragma once

#include "base/assert.hpp"
#include "feroce/result.hpp"  // IWYU pragma: export

// Hands an error on to the caller; for functions that return a Result themselves.
#define TRY(expression)                                                                         \
    do {                                                                                        \
        if (auto try_result = (expression); !try_result.has_value()) return try_result.error(); \
    } while (false)
