// SPDX-License-Identifier: Apache-2.0

package ig

import (
	"path"
	"strings"
)

// OldKernels follows a gadget's name in that of its image for kernels from 5.10 on whose uprobe
// programs may not sleep; see build.yaml.
const OldKernels = "_linux_5_10"

// GadgetName is the last part of an image's name, without its tag and digest: the label of metrics. The
// image for old kernels has its gadget's.
func GadgetName(image string) string {
	return strings.TrimSuffix(base(image), OldKernels)
}

func base(image string) string {
	name, _, _ := strings.Cut(path.Base(image), "@")
	name, _, _ = strings.Cut(name, ":")
	return name
}

// ForOldKernels is the image of the same gadget for old kernels, with the same repository and tag. It
// is the image itself where that is for them, and "" where it has a digest, which does not identify others.
func ForOldKernels(image string) string {
	at := strings.LastIndexByte(image, '/') + 1
	name, tag, isTagged := strings.Cut(image[at:], ":")
	switch {
	case strings.HasSuffix(base(image), OldKernels):
		return image
	case strings.Contains(image, "@"):
		return ""
	case isTagged:
		return image[:at] + name + OldKernels + ":" + tag
	}
	return image + OldKernels
}
