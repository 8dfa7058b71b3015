// SPDX-License-Identifier: Apache-2.0

package verb

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"
	"github.com/spf13/cobra/doc"
)

func newMan() *cobra.Command {
	return &cobra.Command{
		Use:   "man DIR",
		Short: "Write man pages of all commands into a folder",
		Long:  "Write a man page of each command, made of the same text as its help, into a folder.",
		Example: "  ig-gpu man /usr/local/share/man/man1\n" +
			"  ig-gpu man . && man ./ig-gpu-record.1",
		Args: exactly(1, "a folder"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := os.MkdirAll(args[0], 0o755); err != nil {
				return fmt.Errorf("write man pages: %w", err)
			}
			root := cmd.Root()
			root.DisableAutoGenTag = true // the same text gives the same page
			if err := doc.GenManTree(root, &doc.GenManHeader{Title: "IG-GPU", Section: "1", Source: "gpu-gadgets"}, args[0]); err != nil {
				return fmt.Errorf("write man pages: %w", err)
			}
			pages, err := filepath.Glob(filepath.Join(args[0], "ig-gpu*.1"))
			if err != nil {
				return fmt.Errorf("list man pages: %w", err)
			}
			fmt.Fprintf(cmd.ErrOrStderr(), "Wrote %d pages into %s\n", len(pages), args[0])
			return nil
		},
	}
}
