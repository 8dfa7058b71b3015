// SPDX-License-Identifier: Apache-2.0

package verb

import (
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/gpu-gadgets/gpu-gadgets/internal/format/difference"
	"github.com/gpu-gadgets/gpu-gadgets/internal/profile"
	"github.com/gpu-gadgets/gpu-gadgets/internal/stack/library"
)

// newLeaks looks for growth in several files of --mark-out.
func newLeaks() *cobra.Command {
	var limit int
	var confidence float64
	var paths string
	var output string
	cmd := &cobra.Command{
		Use:   "leaks PROFILE PROFILE PROFILE PROFILE...",
		Short: "Show lines whose memory grows from profile to profile",
		Long: "Show lines whose GPU memory grows steadily over four or more profiles of one server,\n" +
			"such as `ig-gpu run cuda_alloc --mark-out` or `--mark-every` writes. For each: how fast it grows (the\n" +
			"median slope), how unlikely the trend is by chance, and whether it also allocates more\n" +
			"than before, which suggests more load instead of a leak.",
		Example: "  ig-gpu run cuda_alloc --pid 4711 --mark-out mark --mark-every 10m\n" +
			"  ig-gpu leaks mark.*.pb.gz\n" +
			"  ig-gpu leaks mark.*.pb.gz --confidence 0.8         less sure ones, too",
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) < profile.LeakProfiles {
				return fmt.Errorf("leaks: name %d or more profiles of one server, not %d: fewer do not show a trend", profile.LeakProfiles, len(args))
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := textOrJSON(output); err != nil {
				return err
			}
			if confidence < 0.5 || confidence >= 1 {
				return fmt.Errorf("--confidence: want a number from 0.5 to below 1, not %g", confidence)
			}
			libraries, err := library.Parse(paths)
			if err != nil {
				return fmt.Errorf("--library-paths: %w", err)
			}
			var profiles []*profile.Profile
			for _, path := range args {
				p, err := readProfile(path, libraries)
				if err != nil {
					return err
				}
				if p.Subject != profile.Memory {
					return fmt.Errorf("%s: leaks needs profiles of memory, such as --mark-out of cuda_alloc writes", path)
				}
				profiles = append(profiles, p)
			}
			leaks, err := profile.Leaks(profiles, confidence)
			if err != nil {
				return fmt.Errorf("find leaks: %w", err)
			}
			if output == "json" {
				return leaksJSON(cmd.OutOrStdout(), leaks, limit)
			}
			return printLeaks(cmd.OutOrStdout(), leaks, limit)
		},
	}
	cmd.Flags().IntVar(&limit, "max-entries", 20, "Number of lines to show, by fastest growth; 0 for all")
	cmd.Flags().Float64Var(&confidence, "confidence", 0.95, "Show lines that grow with at least this confidence")
	addLibraryPaths(cmd, &paths)
	cmd.Flags().StringVarP(&output, "output", "o", "text", "text or json")
	return cmd
}

// leak is one line that grows, in JSON.
type leak struct {
	Frame        string  `json:"frame"`
	Kind         string  `json:"kind"`
	Device       int32   `json:"device"` // -1: not known
	BytesPerHour float64 `json:"bytes_per_hour"`
	GrewBytes    int64   `json:"grew_bytes"`
	GrewObjects  int64   `json:"grew_objects"`
	Confidence   float64 `json:"confidence"`
	MoreWork     bool    `json:"more_work"`
}

func leaksJSON(w io.Writer, leaks []profile.Leak, limit int) error {
	encoder := json.NewEncoder(w)
	for n, l := range leaks {
		if limit > 0 && n == limit {
			break
		}
		if err := encoder.Encode(leak{l.Line, l.Kind, l.Device, l.BytesPerHour, l.Grew, l.Objects, l.Confidence, l.MoreWork}); err != nil {
			return fmt.Errorf("print leaks: %w", err)
		}
	}
	return nil
}

func printLeaks(w io.Writer, leaks []profile.Leak, limit int) error {
	if len(leaks) == 0 {
		_, err := fmt.Fprintln(w, "Nothing grows steadily.")
		return err
	}
	out := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(out, "PER HOUR\tGREW\tOBJECTS\tCONFIDENCE\tWORK\tDEVICE\tKIND\t FRAME")
	shown := leaks
	if limit > 0 && limit < len(leaks) {
		shown = leaks[:limit]
	}
	for _, l := range shown {
		device, work := "unknown", "the same"
		if l.Device != profile.UnknownDevice {
			device = strconv.Itoa(int(l.Device))
		}
		if l.MoreWork {
			work = "more"
		}
		fmt.Fprintf(out, "%s\t%s\t%+d\t%.1f %%\t%s\t%s\t%s\t %s\n", difference.Signed(int64(l.BytesPerHour)), difference.Signed(l.Grew), l.Objects,
			100*l.Confidence, work, device, l.Kind, l.Line)
	}
	if err := out.Flush(); err != nil {
		return fmt.Errorf("print leaks: %w", err)
	}
	if n := len(leaks) - len(shown); n > 0 {
		fmt.Fprintf(w, "%d more lines grow: --max-entries 0 shows them\n", n)
	}
	return nil
}
