// A pointer into a cluster is no pointer of this machine: reaching the object is an operation.
// expect: no match for .operator\*|indirection requires pointer operand
#include "feroce/gas/ptr.hpp"

int value(feroce::gas::ptr<int> p) {
#ifdef MISTAKE
    return *p;
#else
    return static_cast<int>(p.address());
#endif
}
