__attribute__((visibility("default"))) int edgepack_model_test(void);
int _ZN3tvm7runtimeEv(void);
int _ZN3tvm7runtimeEv(void)
{
    return 1;
}
int edgepack_model_test(void)
{
    return _ZN3tvm7runtimeEv();
}
