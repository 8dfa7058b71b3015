// SPDX-License-Identifier: Apache-2.0

package torch

import (
	"bytes"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/inspektor-gadget/inspektor-gadget/pkg/datasource"
	"github.com/inspektor-gadget/inspektor-gadget/pkg/operators"

	"github.com/gpu-gadgets/gpu-gadgets/internal/process/memory"
)

// PyTorch reads its settings from the environment, once, when its allocator is first
// used: c10/cuda/CUDAAllocatorConfig.cpp. The first name is of 2.9 and newer.
var settingsNames = []string{"PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_HIP_ALLOC_CONF"}

// uncachedNames turn the pool off if their value is 1 (c10::utils::check_env); older versions took any value, so that
// others are doubtful. The second one is accepted for ROCm. Of the backends, PyTorch for
// ROCm accepts both names (CUDAAllocatorConfig::parseAllocatorConfig), that for CUDA the first alone:
// it ends with "Unknown allocator backend" where it is given the second.
var (
	uncachedNames = []string{"PYTORCH_NO_CUDA_MEMORY_CACHING", "PYTORCH_NO_HIP_MEMORY_CACHING"}
	asyncBackends = []string{"backend:cudaMallocAsync", "backend:hipMallocAsync"}
)

// withoutPool says why PyTorch of a process with this environment (NAME=value, each ended by NUL) has no pool whose blocks
// could be followed; "" where it has. It may have none where `doubt`, the name of a setting, is not empty.
func withoutPool(environ []byte) (why, doubt string) {
	uncached, async := "", ""
	for entry := range bytes.SplitSeq(environ, []byte{0}) {
		name, value, _ := strings.Cut(string(entry), "=")
		if slices.Contains(uncachedNames, name) {
			if value == "1" {
				uncached = name
			} else {
				doubt = name // without its value, which the process chooses
			}
		}
		for _, n := range settingsNames {
			if name != n {
				continue
			}
			for setting := range strings.SplitSeq(value, ",") {
				if setting = strings.ReplaceAll(setting, " ", ""); slices.Contains(asyncBackends, setting) {
					async = setting
				}
			}
		}
	}
	switch {
	case uncached != "":
		return uncached + ": it asks the driver for each tensor, which are the rows of kind device", ""
	case async != "":
		return async + ": it has no pool of its own, and its tensors are the rows of kind pool, which is the driver's", ""
	}
	return "", doubt
}

// watchBackends reports, once for each process whose PyTorch was found, that there is no
// pool to follow: else an empty kind tensor would look like a loss.
func (i *instance) watchBackends(gc operators.GadgetContext) error {
	ds := gc.GetDataSources()["attachments"]
	if ds == nil {
		return nil
	}
	pid, comm, status, path := ds.GetField("pid"), ds.GetField("comm"), ds.GetField("status"), ds.GetField("path")
	if pid == nil || comm == nil || status == nil || path == nil {
		return fmt.Errorf("data source %s lacks pid, comm, status or path", ds.Name())
	}
	return ds.Subscribe(func(_ datasource.DataSource, d datasource.Data) error {
		s, _ := status.String(d)
		p, _ := path.String(d)
		if s != "attached" || !strings.HasPrefix(filepath.Base(p), library+".") {
			return nil
		}
		n, _ := pid.Uint32(d)
		name, _ := comm.String(d)
		// It may have ended meanwhile, or may not be read.
		environ, _ := memory.ReadInherited(i.procFS, n, memory.MaxBytes)
		if why, doubt := withoutPool(environ); why != "" {
			gc.Logger().Infof("torch: PyTorch of %s[%d] runs with %s", name, n, why)
		} else {
			i.quiet.find(n, name, doubt)
		}
		return nil
	}, subscription)
}
