// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"runtime/debug"
	"strings"

	"github.com/spf13/cobra"

	"github.com/gpu-gadgets/gpu-gadgets/cmd/ig-gpu/internal/images"
)

// version is the release that this tree leads to; see CHANGELOG.md.
var version = "v0.1.0-dev" // a variable for the linker: scripts/release.sh

// gadgetModule is the module whose version decides which images we can run.
const gadgetModule = "github.com/inspektor-gadget/inspektor-gadget"

func newVersionCommand(set images.Set) *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Show the versions of ig-gpu, Inspektor Gadget and the gadgets",
		Args:  cobra.NoArgs,
		Run: func(cmd *cobra.Command, _ []string) {
			gadgets := strings.Join(set.Names(), ", ")
			if gadgets == "" {
				gadgets = "none (built without images: run make build)"
			}
			fmt.Fprintf(cmd.OutOrStdout(), "ig-gpu %s, Inspektor Gadget %s\ngadgets: %s\n",
				version, gadgetVersion(), gadgets)
		},
	}
}

// gadgetVersion is the version of Inspektor Gadget that is linked in.
func gadgetVersion() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown"
	}
	for _, dependency := range info.Deps {
		if dependency.Path == gadgetModule {
			return dependency.Version
		}
	}
	return "unknown"
}
