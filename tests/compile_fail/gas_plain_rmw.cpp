// Words that both sides write have no atomics.
// expect: has no member named .exchange|no member named 'exchange'
#include "feroce/gas/word.hpp"

#ifdef MISTAKE
using Word = feroce::gas::plain<std::uint64_t>;
#else
using Word = feroce::gas::cpu<std::uint64_t>;
#endif
std::uint64_t take(Word& word) {
    return word.exchange(0);
}
