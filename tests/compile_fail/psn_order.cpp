// PSNs wrap, so they have a distance and no order.
// expect: use of deleted function|overload resolution selected deleted operator
#include "base/psn.hpp"

bool earlier() {
#ifdef MISTAKE
    return feroce::Psn(1) < feroce::Psn(2);
#else
    return distance(feroce::Psn(1), feroce::Psn(2)) > 0;
#endif
}
