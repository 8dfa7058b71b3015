// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"os/signal"
	"os/user"
	"strconv"
	"sync"
	"syscall"

	"github.com/inspektor-gadget/inspektor-gadget/cmd/common"
	gadgetservice "github.com/inspektor-gadget/inspektor-gadget/pkg/gadget-service"
	"github.com/inspektor-gadget/inspektor-gadget/pkg/gadget-service/api"
	filestore "github.com/inspektor-gadget/inspektor-gadget/pkg/gadget-service/store/file-store"
	"github.com/inspektor-gadget/inspektor-gadget/pkg/operators"
	gadgettls "github.com/inspektor-gadget/inspektor-gadget/pkg/utils/tls"
	log "github.com/sirupsen/logrus"
	"github.com/spf13/cobra"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"

	"github.com/gpu-gadgets/gpu-gadgets/cmd/ig-gpu/internal/runner"
	"github.com/gpu-gadgets/gpu-gadgets/cmd/internal/daemon"
	"github.com/gpu-gadgets/gpu-gadgets/internal/throttle"
)

const (
	daemonName  = "daemon"
	daemonShort = "Run gadgets for gadgetctl, gpu-exporter and other clients"
)

// serving are the flags of ig's daemon, with its names.
type serving struct {
	address, group            string
	bufferLength              uint64
	keyFile, certFile, caFile string
	isInsecure                bool
}

// newDaemonCommand serves ig's API on a machine without Kubernetes: gadgetctl runs
// gadgets there, and gpu-exporter collects what its gadget instances find. It has
// flags, and operators, that other commands must not have: see registerOperators.
func newDaemonCommand(runtime *runner.Runtime, own []operators.DataOperator) *cobra.Command {
	var s serving
	cmd := &cobra.Command{
		Use:   daemonName,
		Short: daemonShort,
		Args:  cobra.NoArgs,
	}
	flags := cmd.Flags()
	flags.StringVarP(&s.address, "host", "H", api.DefaultDaemonPath, "Address to listen on: unix:///PATH or tcp://HOST:PORT")
	flags.StringVarP(&s.group, "group", "G", "0", "Group, by name or id, that may use the unix socket")
	flags.Uint64Var(&s.bufferLength, "events-buffer-length", 16384, "Events queued for a slow client before they are dropped")
	flags.StringVar(&s.keyFile, "tls-key-file", "", "Key of the server, for tcp")
	flags.StringVar(&s.certFile, "tls-cert-file", "", "Certificate of the server, for tcp")
	flags.StringVar(&s.caFile, "tls-client-ca-file", "", "CA certificates to verify clients, for tcp")
	flags.BoolVar(&s.isInsecure, "tls-insecure", false, "Listen on tcp without TLS: anyone who can connect can run gadgets as root")

	backlog := daemon.NewBacklog()
	operators.RegisterDataOperator(backlog)
	service := gadgetservice.NewService(log.StandardLogger())
	for _, params := range service.GetOperatorMap() {
		common.AddFlags(cmd, params, nil, runtime)
	}
	cmd.RunE = func(*cobra.Command, []string) error {
		if err := runtime.Check(); err != nil {
			return err
		}
		listen, options, err := s.parse()
		if err != nil {
			return err
		}
		service.SetEventBufferLength(s.bufferLength)
		ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
		defer stop()
		log.Infof("listening at %s", s.address)
		return daemon.Run(ctx, daemon.Config{
			Service: service, Runtime: runtime, Own: own, Backlog: backlog, Store: filestore.New,
			Listen: listen, Options: options,
		})
	}
	return cmd
}

func (s serving) parse() (listen gadgetservice.RunConfig, options []grpc.ServerOption, err error) {
	if listen.SocketType, listen.SocketPath, err = api.ParseSocketAddress(s.address); err != nil {
		return listen, nil, fmt.Errorf("--host: %w", err)
	}
	if listen.SocketGID, err = strconv.Atoi(s.group); err != nil {
		group, err := user.LookupGroup(s.group)
		if err != nil {
			return listen, nil, fmt.Errorf("--group: %w", err)
		}
		if listen.SocketGID, err = strconv.Atoi(group.Gid); err != nil {
			return listen, nil, fmt.Errorf("--group: %w", err)
		}
	}
	files := 0
	for _, name := range []string{s.keyFile, s.certFile, s.caFile} {
		if name != "" {
			files++
		}
	}
	switch {
	case files == 3:
		credentials, err := s.credentials(func(text string) { log.Warn(text) })
		return listen, []grpc.ServerOption{grpc.Creds(credentials)}, err
	case files > 0:
		return listen, nil, errors.New("TLS needs all of --tls-key-file, --tls-cert-file and --tls-client-ca-file")
	case listen.SocketType != "unix" && !s.isInsecure:
		return listen, nil, errors.New("anyone who can connect to a tcp address can run gadgets as root: set --tls-key-file, --tls-cert-file and --tls-client-ca-file, or --tls-insecure")
	}
	return listen, nil, nil
}

// credentials read the files again for each connection, so that they can be replaced. While they cannot be read, as between
// the writes of a certificate and its key, the last ones that could be are used.
func (s serving) credentials(warn func(string)) (credentials.TransportCredentials, error) {
	last, err := s.config()
	if err != nil {
		return nil, err
	}
	var mu sync.Mutex
	var failed throttle.Throttle
	return credentials.NewTLS(&tls.Config{MinVersion: tls.VersionTLS12, GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) {
		now, err := s.config()
		mu.Lock()
		defer mu.Unlock()
		if err == nil {
			last = now
		} else {
			failed.Warn(warn, "the certificates that were read before are used: %v", err)
		}
		return last, nil
	}}), nil
}

// config is the configuration by the files as they are now.
func (s serving) config() (*tls.Config, error) {
	certificate, err := gadgettls.LoadTLSCert(s.certFile, s.keyFile)
	if err != nil {
		return nil, fmt.Errorf("--tls-cert-file: %w", err)
	}
	clients, err := gadgettls.LoadTLSCA(s.caFile)
	if err != nil {
		return nil, fmt.Errorf("--tls-client-ca-file: %w", err)
	}
	return &tls.Config{
		ClientAuth: tls.RequireAndVerifyClientCert, Certificates: []tls.Certificate{certificate}, ClientCAs: clients,
		MinVersion: tls.VersionTLS12,
	}, nil
}
