int TVMBackendParallelLaunch(void *function, void *data, int tasks);
__attribute__((visibility("default"))) int edgepack_model_test(void *data);
int edgepack_model_test(void *data)
{
    return TVMBackendParallelLaunch(0, data, 0);
}
