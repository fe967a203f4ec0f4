// What other nodes read must not hold pointers of this one.
// expect: constraints not satisfied|does not satisfy 'Shareable'
#include <string>

#include "feroce/gas/ptr.hpp"

template <feroce::gas::Shareable T>
void share(const T&) {}

void use() {
#ifdef MISTAKE
    share(std::string("shared"));
#else
    share(5);
#endif
}
