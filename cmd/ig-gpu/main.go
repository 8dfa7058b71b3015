// SPDX-License-Identifier: Apache-2.0

// Command ig-gpu is Inspektor Gadget's ig with the operators and the gadget
// images of this repository linked in: one file that shows which line of Python
// holds the GPU's memory. It keeps ig's command line, and runs ig's gadgets too.
package main

import (
	"errors"
	"fmt"
	"net/http"
	_ "net/http/pprof" // for --pprof-addr; serves nothing unless that is set
	"os"
	"regexp"
	"runtime/debug"
	"strings"

	"github.com/inspektor-gadget/inspektor-gadget/cmd/common"
	"github.com/inspektor-gadget/inspektor-gadget/cmd/common/image"
	"github.com/inspektor-gadget/inspektor-gadget/cmd/common/utils"
	listcontainers "github.com/inspektor-gadget/inspektor-gadget/cmd/ig/containers"
	"github.com/inspektor-gadget/inspektor-gadget/pkg/config"
	_ "github.com/inspektor-gadget/inspektor-gadget/pkg/environment/local" // says that we are not in a cluster
	"github.com/inspektor-gadget/inspektor-gadget/pkg/runtime/local"
	"github.com/inspektor-gadget/inspektor-gadget/pkg/utils/host"
	log "github.com/sirupsen/logrus"
	"github.com/spf13/cobra"
	_ "golang.org/x/crypto/x509roots/fallback" // where the image has no certificates

	"github.com/gpu-gadgets/gpu-gadgets/cmd/ig-gpu/internal/containers"
	"github.com/gpu-gadgets/gpu-gadgets/cmd/ig-gpu/internal/help"
	"github.com/gpu-gadgets/gpu-gadgets/cmd/ig-gpu/internal/images"
	"github.com/gpu-gadgets/gpu-gadgets/cmd/ig-gpu/internal/runner"
	"github.com/gpu-gadgets/gpu-gadgets/cmd/ig-gpu/internal/verb"
	"github.com/gpu-gadgets/gpu-gadgets/cmd/internal/console"
	"github.com/gpu-gadgets/gpu-gadgets/cmd/internal/machine"
	"github.com/gpu-gadgets/gpu-gadgets/cmd/internal/stacks"
	"github.com/gpu-gadgets/gpu-gadgets/internal/export/listen"
	"github.com/gpu-gadgets/gpu-gadgets/internal/format/screen"
)

func main() {
	limitMemory()
	os.Exit(run(os.Args[1:], images.Embedded()))
}

// limitMemory keeps a tool small that shares a node with the processes that it traces: the
// heap may grow by 50 % between collections instead of 100 %. GOGC
// overrides it. There is no fixed limit: names of large libraries may need their space,
// and a collector against its limit would take the processor instead.
func limitMemory() {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(50)
	}
}

// run executes one command line, with the gadgets of set inside, and returns the
// exit code. Whatever goes wrong is one line on stderr.
func run(args []string, set images.Set) (code int) {
	defer func() {
		if cause := recover(); cause != nil {
			log.Debugf("%s", debug.Stack())
			code = fail(fmt.Errorf("internal error: %v (add --verbose for the stack)", cause))
		}
	}()

	terminal := console.New(os.Stdin, os.Stdout)
	defer terminal.Restore()
	args, err := acceptInput(args)
	if err != nil {
		return fail(err)
	}
	asked := helpOf(args)
	if asked.gadget != "" && !asked.all && help.WriteGadget(os.Stdout, asked.gadget) {
		return 0
	}
	root, err := newCommand(asked, set, terminal)
	if err != nil {
		return fail(err)
	}
	root.SetArgs(asked.args)
	if cmd, err := root.ExecuteC(); err != nil {
		return fail(suggested(cmd, err))
	}
	return 0
}

// fail prints err as one line, unless it is a list, and returns the exit code.
func fail(err error) int {
	var list interface{ Lines() string }
	if errors.As(err, &list) {
		fmt.Fprintf(os.Stderr, "Error: %s\n", screen.CleanLines(list.Lines()))
		return 1
	}
	text := screen.Clean(strings.Join(strings.Fields(err.Error()), " "))
	fmt.Fprintf(os.Stderr, "Error: %s\n", withoutSteps(text, err))
	return 1
}

// withoutSteps drops the steps that led to an error which stands alone.
func withoutSteps(text string, err error) string {
	var requirement *machine.Requirement
	switch {
	case errors.As(err, &requirement):
		return requirement.Need
	case errors.Is(err, runner.ErrNoContainers):
		return runner.ErrNoContainers.Error()
	case errors.Is(err, runner.ErrUnknownGadget):
		return text[strings.Index(text, runner.ErrUnknownGadget.Error()):]
	}
	return operatorSteps.ReplaceAllString(text, "")
}

// operatorSteps are those through which Inspektor Gadget starts a gadget. They
// say nothing to a user; the last of them, the operator's own, does.
var operatorSteps = regexp.MustCompile(
	`^(run \w+: )?(initializing and preparing|pre-starting|starting|stopping|post-stopping) operators: ` +
		`((instantiating|pre-starting|starting) operator "[^"]*": )?`)

// newCommand builds the command tree. The arguments are needed already here:
// flags about the host decide what the rest of the tree looks like.
func newCommand(asked request, set images.Set, terminal *console.Terminal) (*cobra.Command, error) {
	args := asked.args
	root := &cobra.Command{
		Use:           "ig-gpu",
		Short:         "Show which line of Python holds GPU memory",
		SilenceErrors: true, // run prints them
		SilenceUsage:  true,
	}
	flags := root.PersistentFlags()
	common.AddConfigFlag(root)
	common.AddVerboseFlag(root)
	host.AddFlags(root)
	if err := machine.MountByDefault(flags); err != nil {
		return nil, err
	}
	pprofAddress := flags.String("pprof-addr", "", "Serve Go's profiles of ig-gpu itself at this address, e.g. localhost:6060")
	selfProfile := flags.String("self-profile", "", "Send profiles of ig-gpu itself to this Pyroscope, e.g. http://pyroscope:4040")

	if err := utils.ParseEarlyFlags(root, args); err != nil {
		return nil, err
	}
	rootFlags := utils.CopyFlagSet(flags) // before commands add theirs

	runtime := runner.New(local.New(), set, machine.This())
	if asked.all {
		runtime.OnlyHelp()
		quietHelp()
	}
	if err := common.InitConfig(rootFlags); err != nil {
		return nil, fmt.Errorf("read configuration: %w", err)
	}
	if err := common.SetFlagsForParams(root, runtime.GlobalParamDescs().ToParams(), config.RuntimeKey); err != nil {
		return nil, fmt.Errorf("read configuration: %w", err)
	}
	// A server does not let its clients choose where the data goes.
	isDaemon := root.Flags().Arg(0) == daemonName
	if isDaemon {
		runtime.Serve()
	}
	own, err := registerOperators(isDaemon, stacks.New(runtime), terminal)
	if err != nil {
		return nil, err
	}
	if !terminal.HasColour() {
		log.SetFormatter(&log.TextFormatter{DisableColors: true})
	}
	console.CleanLogs(log.StandardLogger())
	containers.QuietWithoutRuntime(log.StandardLogger())
	if *pprofAddress != "" {
		go serveProfiles(*pprofAddress)
	}
	if *selfProfile != "" {
		stop, err := startSelfProfile(*selfProfile)
		if err != nil {
			return nil, err
		}
		cobra.OnFinalize(stop)
	}

	run := common.NewRunCommand(root, runtime, []string{"kubernetes"}, common.CommandModeRun)
	dress(root, run, set, asked)
	root.AddCommand(
		run,
		image.NewImageCmd(runtime, nil),
		listcontainers.NewListContainersCmd(),
		common.NewLoginCmd(),
		common.NewLogoutCmd(),
		common.NewConfigCmd(runtime, rootFlags),
		newVersionCommand(set),
	)
	root.AddCommand(verb.Commands(verbConfig(runtime, terminal))...)
	if isDaemon {
		root.AddCommand(newDaemonCommand(runtime, own))
	} else {
		root.AddCommand(&cobra.Command{Use: daemonName, Short: daemonShort, RunE: func(*cobra.Command, []string) error {
			return fmt.Errorf("put %s before its flags", daemonName)
		}})
	}
	return root, nil
}

// serveProfiles lives as long as the process; its failure ends only itself.
func serveProfiles(address string) {
	server, err := listen.Serve(address, http.DefaultServeMux, listen.Options{})
	if err == nil {
		err = server.Wait()
	}
	log.Warnf("serve Go profiles at %s: %v", address, err)
}
