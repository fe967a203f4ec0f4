// A Result that nobody looks at is a lost error.
// expect: ignoring return(ed)? value
#include <cerrno>

#include "base/result.hpp"

feroce::Result<int> open_device() {
    return feroce::Error{ENODEV, "no device"};
}

int main() {
#ifdef MISTAKE
    open_device();
    return 0;
#else
    return open_device() ? 0 : 1;
#endif
}
