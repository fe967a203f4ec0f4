// A field of another type would be an offset into nothing.
// expect: the field belongs to another type
#include "feroce/gas/ptr.hpp"

struct Item {
    int key;
};
struct Other {
    int key;
};

feroce::gas::ptr<int> key_of(feroce::gas::ptr<Item> item) {
#ifdef MISTAKE
    return item.field<&Other::key>();
#else
    return item.field<&Item::key>();
#endif
}
