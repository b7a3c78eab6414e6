/* Four threads that take, touch and free blocks of 1 to 100 KB: with glibc their arenas are trimmed again and again.
   The first argument is how many blocks each takes. */
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

static long blocks_each;

static void *work(void *seed) {
    uint64_t state = (uintptr_t)seed;
    char *kept[21];
    int count = 0;
    for (long n = 0; n < blocks_each; n++) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        size_t bytes = 1000 + (state >> 33) % 100000;
        kept[count] = malloc(bytes);
        memset(kept[count], 1, bytes);
        if (++count > 20) {
            for (int at = 0; at < 15; at++)
                free(kept[at]);
            memmove(kept, kept + 15, sizeof(char *) * (size_t)(count - 15));
            count -= 15;
        }
    }
    while (count > 0)
        free(kept[--count]);
    return 0;
}

int main(int argc, char **argv) {
    blocks_each = argc > 1 ? atol(argv[1]) : 20000;
    pthread_t threads[4];
    for (uintptr_t n = 0; n < 4; n++)
        pthread_create(&threads[n], 0, work, (void *)(n + 1));
    for (int n = 0; n < 4; n++)
        pthread_join(threads[n], 0);
    return 0;
}
