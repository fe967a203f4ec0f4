// An rkey is for peers, an lkey for ourselves; comparing them is always a mistake.
// expect: no match for .operator==|invalid operands to binary expression
#include "base/ids.hpp"

bool same() {
#ifdef MISTAKE
    return feroce::RKey{1} == feroce::LKey{1};
#else
    return feroce::RKey{1} == feroce::RKey{1};
#endif
}
