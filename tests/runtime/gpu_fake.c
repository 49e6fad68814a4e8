/* The GPU variant of the mini model on the fake drivers: each test is one of a driver's, in the header of its
 * name.
 */
#include "gpu_fakes.h"

#include <sys/wait.h>
#include <unistd.h>

#include "gpu_document.h" /* the C of docs/gpu.md */

#include "opencl_fake.h"
#include "cuda_fake.h"
#include "metal_fake.h"

TEST_MAIN({"opencl_late", opencl_late}, {"cuda_late", cuda_late}, {"metal_late", metal_late},
          {"opencl_document", opencl_document}, {"opencl_cache", opencl_cache},
          {"opencl_numbers", opencl_numbers}, {"opencl_open_failures", opencl_open_failures},
          {"opencl_session_failures", opencl_session_failures}, {"opencl_lost_device", opencl_lost_device},
          {"opencl_devices", opencl_devices}, {"opencl_memory", opencl_memory},
          {"opencl_options", opencl_options}, {"opencl_forked", opencl_forked},
          {"opencl_no_driver", opencl_no_driver}, {"opencl_params", opencl_params},
          {"opencl_caller", opencl_caller}, {"opencl_caller_failures", opencl_caller_failures},
          {"opencl_caller_objects", opencl_caller_objects}, {"cuda_caller", cuda_caller},
          {"cuda_caller_failures", cuda_caller_failures}, {"cuda_caller_objects", cuda_caller_objects},
          {"cuda_document", cuda_document}, {"metal_caller", metal_caller},
          {"metal_caller_failures", metal_caller_failures}, {"cuda_numbers", cuda_numbers},
          {"cuda_open_failures", cuda_open_failures}, {"cuda_session_failures", cuda_session_failures},
          {"cuda_lost_device", cuda_lost_device}, {"cuda_devices", cuda_devices},
          {"cuda_image_choice", cuda_image_choice}, {"cuda_both_drivers", cuda_both_drivers},
          {"cuda_memory", cuda_memory}, {"cuda_no_driver", cuda_no_driver}, {"metal_numbers", metal_numbers},
          {"metal_params_in_memory", metal_params_in_memory}, {"metal_open_failures", metal_open_failures},
          {"metal_compiled_library", metal_compiled_library},
          {"metal_session_failures", metal_session_failures}, {"metal_lost_device", metal_lost_device},
          {"metal_devices", metal_devices}, {"metal_order_of_copies", metal_order_of_copies},
          {"metal_memory", metal_memory}, {"metal_in_flight", metal_in_flight},
          {"metal_no_driver", metal_no_driver})
