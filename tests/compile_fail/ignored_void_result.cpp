// The same for a Result without a value.
// expect: ignoring return(ed)? value
#include <cerrno>

#include "base/result.hpp"

feroce::Result<void> close_device() {
    return feroce::Error{EBUSY, "in use"};
}

int main() {
#ifdef MISTAKE
    close_device();
    return 0;
#else
    return close_device() ? 0 : 1;
#endif
}
