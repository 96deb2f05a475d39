/* The peer of tacit.kernels.sgd: the same algorithm, as plainly as C has it. */
#include <math.h>
#include <stdint.h>

static void shorten(float *row, int64_t p, float squares, float span) {
    if (squares > span) {
        float shrink = sqrtf(span / squares);
        for (int64_t f = 0; f < p; f++) row[f] *= shrink;
    }
}

void sgd_epoch(const int32_t *users, const int32_t *items, const float *values, float shift, const int64_t *order,
               int64_t ratings, float *u, float *v, int64_t p, float rate, float regularization, float span) {
    for (int64_t k = 0; k < ratings; k++) {
        int64_t e = order[k];
        float *restrict a = u + users[e] * p, *restrict b = v + items[e] * p;
        float predicted = 0, of_a = 0, of_b = 0;
        for (int64_t f = 0; f < p; f++) predicted += a[f] * b[f];
        float error = values[e] - shift - predicted;
        for (int64_t f = 0; f < p; f++) {
            float x = fmaxf(0, a[f] + rate * (error * b[f] - regularization * a[f]));
            float y = fmaxf(0, b[f] + rate * (error * a[f] - regularization * b[f]));
            a[f] = x;
            b[f] = y;
            of_a += x * x;
            of_b += y * y;
        }
        shorten(a, p, of_a, span);
        shorten(b, p, of_b, span);
    }
}
