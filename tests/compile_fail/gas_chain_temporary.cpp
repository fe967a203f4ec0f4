// A chain takes what it writes from where it is when it runs: a temporary would be gone.
// expect: use of deleted function|call to deleted member function
#include "feroce/gas/chain.hpp"

struct Pair {
    std::uint64_t first = 0;
    std::uint64_t second = 0;
};

void store(feroce::gas::Chain& chain, feroce::gas::ptr<Pair> to) {
#ifdef MISTAKE
    chain.write(to, Pair{1, 2});
#else
    static const Pair pair{1, 2};
    chain.write(to, pair);
#endif
}
