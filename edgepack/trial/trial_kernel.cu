/* What `edgepack doctor` compiles with nvcc. */
extern "C" __global__ void edgepack_trial(const float *x, float *y, int count) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < count) {
        y[i] = 2.0f * x[i];
    }
}
