// The environment, for rooms below the waist. A program that runs with more rights than its caller
// (set-uid, set-gid, file capabilities) takes nothing from the caller's environment: every variable
// counts as unset there.
#pragma once

#include <cstdlib>

namespace feroce {

inline const char* environment(const char* name) {  // Null if unset.
    return ::secure_getenv(name);
}

}  // namespace feroce
