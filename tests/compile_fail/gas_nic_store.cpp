// A NIC's atomic may lose what the CPU stores into the same word.
// expect: has no member named .store|no member named 'store'
#include "feroce/gas/word.hpp"

#ifdef MISTAKE
void clear(feroce::gas::nic<std::uint64_t>& word) {
#else
void clear(feroce::gas::plain<std::uint64_t>& word) {
#endif
    word.store(0);
}
