// SPDX-License-Identifier: Apache-2.0

package verb

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/gpu-gadgets/gpu-gadgets/cmd/ig-gpu/internal/targets"
)

// completeProcesses offers the processes that have CUDA mapped, with their command lines.
func completeProcesses(cfg Config) cobra.CompletionFunc {
	return func(*cobra.Command, []string, string) ([]cobra.Completion, cobra.ShellCompDirective) {
		found, err := targets.Find(cfg.ProcFS)
		if err != nil {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		var out []cobra.Completion
		for _, p := range withoutForks(found) {
			out = append(out, cobra.CompletionWithDesc(fmt.Sprint(p.PID), brief(p.Command, 60)))
		}
		return out, cobra.ShellCompDirectiveNoFileComp
	}
}

func completeProfiles(*cobra.Command, []string, string) ([]cobra.Completion, cobra.ShellCompDirective) {
	return []cobra.Completion{"gz", "pprof"}, cobra.ShellCompDirectiveFilterFileExt
}
