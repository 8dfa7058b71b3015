/* SPDX-License-Identifier: (LGPL-2.1 OR BSD-2-Clause) */
#ifndef GPU_GADGETS_HIP_ERROR_H
#define GPU_GADGETS_HIP_ERROR_H

/*
 * error: hipError_t (hip_runtime_api.h 6.4.3) by the names that users know, instead of those
 * of CUDA. The numbers that both have mean the same.
 */
enum cuda_error {
	hipSuccess = 0,
	hipErrorInvalidValue = 1,
	hipErrorOutOfMemory = 2,
	hipErrorNotInitialized = 3,
	hipErrorDeinitialized = 4,
	hipErrorInvalidPitchValue = 12,
	hipErrorInvalidDevicePointer = 17,
	hipErrorInsufficientDriver = 35,
	hipErrorNoDevice = 100,
	hipErrorInvalidDevice = 101,
	hipErrorInvalidContext = 201,
	hipErrorMapFailed = 205,
	hipErrorAlreadyMapped = 208,
	hipErrorInvalidHandle = 400,
	hipErrorIllegalState = 401,
	hipErrorNotFound = 500,
	hipErrorNotReady = 600,
	hipErrorIllegalAddress = 700,
	hipErrorContextIsDestroyed = 709,
	hipErrorHostMemoryAlreadyRegistered = 712,
	hipErrorHostMemoryNotRegistered = 713,
	hipErrorLaunchFailure = 719,
	hipErrorNotSupported = 801,
	hipErrorStreamCaptureUnsupported = 900,
	hipErrorStreamCaptureInvalidated = 901,
	hipErrorUnknown = 999,
	hipErrorRuntimeMemory = 1052,
	hipErrorRuntimeOther = 1053,
};

#define CUDA_ERROR_OUT_OF_MEMORY hipErrorOutOfMemory

#endif
