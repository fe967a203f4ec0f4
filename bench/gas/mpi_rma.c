/* The peer of `./feroce bench gas`: MPI's one-sided operations between two processes, rank 0 on a
 * window of rank 1, one at a time and sixteen under way. A line of JSON each.  mpi_rma MILLISECONDS
 */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define DEEP 16
#define MOST 1000000

static long long values[DEEP];
static long long result[DEEP];
static long long compare;
static double times[MOST]; /* Of each flush, in microseconds. */

static int by_size(const void* a, const void* b) {
    const double left = *(const double*)a, right = *(const double*)b;
    return (left > right) - (left < right);
}

static void post(const char* kind, int i, MPI_Win window) {
    if (strcmp(kind, "read 8 B") == 0)
        MPI_Get(&result[i], 1, MPI_LONG_LONG, 1, 0, 1, MPI_LONG_LONG, window);
    else if (strcmp(kind, "write 8 B") == 0)
        MPI_Put(&values[i], 1, MPI_LONG_LONG, 1, 0, 1, MPI_LONG_LONG, window);
    else if (strcmp(kind, "fetch_add") == 0)
        MPI_Fetch_and_op(&values[i], &result[i], MPI_LONG_LONG, 1, 0, MPI_SUM, window);
    else
        MPI_Compare_and_swap(&values[i], &compare, &result[i], MPI_LONG_LONG, 1, 0, window);
}

static void run(const char* kind, int deep, double seconds, MPI_Win window) {
    long count = 0;
    const double start = MPI_Wtime();
    double now = start;
    while (now - start < seconds && count < MOST) {
        const double before = now;
        for (int i = 0; i < deep; ++i) post(kind, i, window);
        MPI_Win_flush(1, window);
        now = MPI_Wtime();
        times[count++] = (now - before) * 1e6;
    }
    qsort(times, (size_t)count, sizeof times[0], by_size);
    printf("{\"row\": \"%s\", \"tasks\": %d, \"per_s\": %f, \"p50_us\": %f}\n", kind, deep,
           (double)(count * deep) / (now - start), times[count / 2]);
}

int main(int argc, char** argv) {
    static const char* const kinds[] = {"read 8 B", "write 8 B", "compare_exchange", "fetch_add"};
    int rank = 0;
    long long* memory = NULL;
    MPI_Win window;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Win_allocate(64, 8, MPI_INFO_NULL, MPI_COMM_WORLD, &memory, &window);
    memset(memory, 0, 64);
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Win_lock_all(0, window);
    if (rank == 0)
        for (unsigned k = 0; k < sizeof kinds / sizeof kinds[0]; ++k)
            for (int deep = 1; deep <= DEEP; deep += DEEP - 1)
                run(kinds[k], deep, atoi(argv[1]) / 1000.0, window);
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Win_unlock_all(window);
    MPI_Win_free(&window);
    MPI_Finalize();
    return 0;
}
