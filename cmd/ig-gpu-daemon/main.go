// SPDX-License-Identifier: Apache-2.0

// Command ig-gpu-daemon is Inspektor Gadget's daemon of a Kubernetes node,
// gadgettracermanager, with the operators of this repository. It takes the other's
// place in its image (Dockerfile), so it has the same flags, configuration file,
// probes and API: kubectl gadget and Inspektor Gadget's chart work as they are.
//
// What our operators need beside is in the same configuration file, under
// operator.export and operator.metrics: only who deploys the daemon decides where
// the data of a node is sent (docs/reference/daemon.md).
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"runtime/debug"
	"strconv"
	"syscall"

	"github.com/inspektor-gadget/inspektor-gadget/gadget-container/entrypoint"
	"github.com/inspektor-gadget/inspektor-gadget/pkg/config"
	"github.com/inspektor-gadget/inspektor-gadget/pkg/config/gadgettracermanagerconfig"
	_ "github.com/inspektor-gadget/inspektor-gadget/pkg/environment/k8s" // says that we are in a cluster
	gadgetservice "github.com/inspektor-gadget/inspektor-gadget/pkg/gadget-service"
	"github.com/inspektor-gadget/inspektor-gadget/pkg/gadget-service/api"
	instancemanager "github.com/inspektor-gadget/inspektor-gadget/pkg/gadget-service/instance-manager"
	"github.com/inspektor-gadget/inspektor-gadget/pkg/gadget-service/store"
	configmapstore "github.com/inspektor-gadget/inspektor-gadget/pkg/gadget-service/store/k8s-configmap-store"
	"github.com/inspektor-gadget/inspektor-gadget/pkg/operators"
	"github.com/inspektor-gadget/inspektor-gadget/pkg/operators/kubemanager"
	kubetypes "github.com/inspektor-gadget/inspektor-gadget/pkg/operators/kubemanager/types"
	"github.com/inspektor-gadget/inspektor-gadget/pkg/runtime/local"
	"github.com/inspektor-gadget/inspektor-gadget/pkg/utils/host"
	log "github.com/sirupsen/logrus"
	_ "golang.org/x/crypto/x509roots/fallback" // where the image has no certificates

	"github.com/gpu-gadgets/gpu-gadgets/cmd/internal/console"
	"github.com/gpu-gadgets/gpu-gadgets/cmd/internal/daemon"
	"github.com/gpu-gadgets/gpu-gadgets/cmd/internal/machine"
	"github.com/gpu-gadgets/gpu-gadgets/cmd/internal/registry"
	"github.com/gpu-gadgets/gpu-gadgets/cmd/internal/stacks"
	"github.com/gpu-gadgets/gpu-gadgets/internal/process/selection"

	// Those of Inspektor Gadget's daemon that ig does not have.
	_ "github.com/inspektor-gadget/inspektor-gadget/pkg/operators/kubeipresolver"
	_ "github.com/inspektor-gadget/inspektor-gadget/pkg/operators/kubenameresolver"
	_ "github.com/inspektor-gadget/inspektor-gadget/pkg/operators/limiter"
	_ "github.com/inspektor-gadget/inspektor-gadget/pkg/operators/otel-logs"
	_ "github.com/inspektor-gadget/inspektor-gadget/pkg/operators/otel-metrics"
)

type options struct {
	serve, liveness             bool
	socket, address, configFile string
}

func main() {
	var o options
	// Inspektor Gadget's flags, with its names.
	flag.BoolVar(&o.serve, "serve", false, "Start the server")
	flag.BoolVar(&o.liveness, "liveness", false, "Check the health of a running server")
	flag.StringVar(&o.socket, "liveness-socketfile", kubetypes.DefaultHookAndLivenessSocketFile, "Socket of the liveness check")
	flag.StringVar(&o.address, "service-host", fmt.Sprintf("tcp://127.0.0.1:%d", api.GadgetServicePort), "Address of the API; anyone who can reach it can run gadgets as root")
	// Ours.
	flag.StringVar(&o.configFile, "config", gadgettracermanagerconfig.ConfigPath, "Configuration file")
	flag.Parse()

	if err := run(o, flag.Args()); err != nil {
		fmt.Fprintf(os.Stderr, "Error: %v\n", err)
		os.Exit(1)
	}
}

func run(o options, args []string) error {
	switch {
	case len(args) > 0:
		return fmt.Errorf("unexpected argument %q: only flags are accepted (-h lists them)", args[0])
	case o.liveness:
		return checkLiveness(o.socket)
	case o.serve:
		return serve(o)
	}
	return errors.New("nothing to do: set -serve or -liveness")
}

func serve(o options) error {
	// As in ig-gpu: a small heap counts more on a node than a little processor time.
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(50)
	}
	console.CleanLogs(log.StandardLogger())
	buffer, err := readConfig(o.configFile)
	if err != nil {
		return err
	}
	namespace := config.Config.GetString(gadgettracermanagerconfig.GadgetNamespace)
	if namespace == "" {
		return fmt.Errorf("configuration %s: %s is not set", o.configFile, gadgettracermanagerconfig.GadgetNamespace)
	}
	kind, path, err := api.ParseSocketAddress(o.address)
	if err != nil {
		return fmt.Errorf("-service-host: %w", err)
	}
	if err := prepareHost(); err != nil {
		return err
	}
	gadgets := variantsFor(local.New(), machine.This())
	own := registry.Register(registry.Config{HasContainers: func() bool { return true }, IsDaemon: true, Stacks: stacks.NewBeside(gadgets)})
	operators.RegisterDataOperator(containers{kubemanager.KubeManagerOperator})
	backlog := daemon.NewBacklog()
	operators.RegisterDataOperator(backlog)
	service := gadgetservice.NewService(log.StandardLogger())
	service.SetEventBufferLength(buffer)

	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	log.Infof("serving Inspektor Gadget's API with the operators of gpu-gadgets at %s", o.address)
	return daemon.Run(ctx, daemon.Config{
		Service: service, Runtime: gadgets, Own: own, Backlog: backlog,
		Store:  func(m *instancemanager.Manager) (store.Store, error) { return configmapstore.New(m, namespace) },
		Listen: gadgetservice.RunConfig{SocketType: kind, SocketPath: path}, Options: gadgets.intercept(),
	})
}

// readConfig reads the file with Inspektor Gadget's defaults (its package
// gadgettracermanagerconfig), and returns the length of event buffers.
func readConfig(path string) (uint64, error) {
	config.Config = config.NewWithPath(path)
	config.Config.SetDefault(gadgettracermanagerconfig.EventsBufferLengthKey, 16384)
	config.Config.SetDefault(gadgettracermanagerconfig.DaemonLogLevel, "info")
	if err := config.Config.ReadInConfig(); err != nil {
		return 0, fmt.Errorf("read configuration: %w", err)
	}
	level, err := log.ParseLevel(config.Config.GetString(gadgettracermanagerconfig.DaemonLogLevel))
	if err != nil {
		return 0, fmt.Errorf("configuration %s: %s: %w", path, gadgettracermanagerconfig.DaemonLogLevel, err)
	}
	log.SetLevel(level)
	length, err := strconv.ParseUint(config.Config.GetString(gadgettracermanagerconfig.EventsBufferLengthKey), 10, 32)
	if err != nil {
		return 0, fmt.Errorf("configuration %s: %s: %w", path, gadgettracermanagerconfig.EventsBufferLengthKey, err)
	}
	return length, nil
}

// prepareHost does what Inspektor Gadget's daemon does before it serves, and
// refuses a pod that does not see the host's processes.
func prepareHost() error {
	if err := host.Init(host.Config{AutoMountFilesystems: true}); err != nil {
		return fmt.Errorf("look at the host: %w", err)
	}
	isHost, err := host.IsHostPidNs()
	if err != nil {
		return fmt.Errorf("check whether the pod has the host's PID namespace: %w", err)
	}
	if !isHost {
		return errors.New("the pod does not have the host's PID namespace, which it needs to attach probes:" +
			" set hostPID: true (hostPID=true in the values of Inspektor Gadget's chart)")
	}
	// The node may be a container, as those of kind are, and minikube's with the driver docker.
	if selection.CheckNamespace(host.HostProcFs) != nil {
		log.Warn("this node has a PID namespace of its own, whose ids the kernel's programs do not know:" +
			" --pid is refused, rows have the ids of the machine, and native code has no names")
	}
	if err := entrypoint.Init(); err != nil {
		return fmt.Errorf("prepare the gadget pod: %w", err)
	}
	return nil
}
