__attribute__((visibility("default"))) int edgepack_model_test(void);
__attribute__((visibility("default"))) int second(void);
int edgepack_model_test(void)
{
    return 1;
}
int second(void)
{
    return 2;
}
