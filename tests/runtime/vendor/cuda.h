/* As much of NVIDIA's header as docs/gpu.md uses. */
#ifndef VENDOR_CUDA_H
#define VENDOR_CUDA_H

typedef struct CUctx_st *CUcontext;
typedef struct CUstream_st *CUstream;
typedef unsigned long long CUdeviceptr;

#endif
