// A NIC's atomic on a word that the CPU changes by atomics could lose an update of either.
// expect: no matching (member )?function
#include "feroce/gas/lanes.hpp"

using namespace feroce::gas;

#ifdef MISTAKE
void count(Lanes& lanes, ptr<cpu<std::uint64_t>> word) {
#else
void count(Lanes& lanes, ptr<nic<std::uint64_t>> word) {
#endif
    static_cast<void>(lanes.fetch_add(word, 1).wait());
}
