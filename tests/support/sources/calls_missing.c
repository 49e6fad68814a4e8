int not_defined_anywhere(void);
__attribute__((visibility("default"))) int edgepack_model_test(void);
int edgepack_model_test(void)
{
    return not_defined_anywhere();
}
