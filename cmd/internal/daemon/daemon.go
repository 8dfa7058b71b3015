// SPDX-License-Identifier: Apache-2.0

// Package daemon serves Inspektor Gadget's gRPC API, as its own daemons do. Unlike them,
// it stops the gadget instances before the process exits, so that they send the rest of
// their data.
package daemon

import (
	"context"
	"errors"
	"fmt"
	"time"

	gadgetservice "github.com/inspektor-gadget/inspektor-gadget/pkg/gadget-service"
	instancemanager "github.com/inspektor-gadget/inspektor-gadget/pkg/gadget-service/instance-manager"
	"github.com/inspektor-gadget/inspektor-gadget/pkg/gadget-service/store"
	"github.com/inspektor-gadget/inspektor-gadget/pkg/operators"
	"github.com/inspektor-gadget/inspektor-gadget/pkg/runtime"
	"google.golang.org/grpc"
)

// stopLimit is the time that instances have to end. Exporters take 5 s if a receiver is
// unreachable, and Kubernetes kills the process after 30 s.
const stopLimit = 15 * time.Second

// Config of a daemon.
type Config struct {
	// Service knows the operators. It is created first, because command lines read
	// its parameters.
	Service *gadgetservice.Service
	// Runtime runs the gadget instances.
	Runtime runtime.Runtime
	// Store holds the instances; it has the manager run them.
	Store func(*instancemanager.Manager) (store.Store, error)
	// Backlog is registered, and known to Service; may be nil.
	Backlog *Backlog
	// Own are our operators, whose part of the configuration is checked.
	Own     []operators.DataOperator
	Listen  gadgetservice.RunConfig
	Options []grpc.ServerOption
}

// Run serves until ctx ends, or something fails.
func Run(ctx context.Context, cfg Config) error {
	if err := checkConfig(cfg.Own); err != nil {
		return err
	}
	running := &running{Runtime: cfg.Runtime, contexts: map[runtime.GadgetContext]bool{}}
	manager, err := instancemanager.New(running)
	if err != nil {
		return fmt.Errorf("make the manager of gadget instances: %w", err)
	}
	instances, err := cfg.Store(manager)
	if err != nil {
		return fmt.Errorf("open the store of gadget instances: %w", err)
	}
	cfg.Service.SetInstanceManager(manager)
	cfg.Service.SetStore(instances)

	options := append(cfg.Options, grpc.ChainStreamInterceptor(recovered), grpc.ChainUnaryInterceptor(answered(manager)))
	if cfg.Backlog != nil {
		options = append(options, grpc.ChainStreamInterceptor(cfg.Backlog.intercept))
	}
	failed := make(chan error, 1)
	go func() { failed <- cfg.Service.Run(cfg.Listen, options...) }()
	select {
	case err = <-failed:
		if err == nil {
			err = errors.New("the service has ended")
		}
	case <-ctx.Done():
	}
	if !running.stop(stopLimit) {
		err = errors.Join(err, fmt.Errorf("gadget instances did not end within %v", stopLimit))
	}
	cfg.Service.Close()
	return err
}
