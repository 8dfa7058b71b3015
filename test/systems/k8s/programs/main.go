// SPDX-License-Identifier: Apache-2.0

// Command kubernetes has the programs of a Kubernetes cluster in one file, and runs the
// one that it is called as: each of them would be 60 to 140 MB, most of it the same. They
// are upstream's own; only the registry, which keeps images in memory, has its few lines
// here.
package main

import (
	"context"
	"crypto/tls"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"time"

	"github.com/google/go-containerregistry/pkg/registry"
	"github.com/spf13/cobra"
	"go.etcd.io/etcd/server/v3/etcdmain"
	"k8s.io/component-base/cli"
	_ "k8s.io/component-base/logs/json/register"
	kubectl "k8s.io/kubectl/pkg/cmd"
	apiserver "k8s.io/kubernetes/cmd/kube-apiserver/app"
	manager "k8s.io/kubernetes/cmd/kube-controller-manager/app"
	scheduler "k8s.io/kubernetes/cmd/kube-scheduler/app"
	kubelet "k8s.io/kubernetes/cmd/kubelet/app"
)

func main() {
	programs := map[string]func() *cobra.Command{
		"kube-apiserver":          apiserver.NewAPIServerCommand,
		"kube-controller-manager": manager.NewControllerManagerCommand,
		"kube-scheduler":          func() *cobra.Command { return scheduler.NewSchedulerCommand() },
		"kubelet":                 func() *cobra.Command { return kubelet.NewKubeletCommand(context.Background()) },
		"kubectl":                 kubectl.NewDefaultKubectlCommand,
	}
	switch name := filepath.Base(os.Args[0]); name {
	case "etcd":
		etcdmain.Main(os.Args)
	case "registry":
		address, certificate, key := os.Args[1], os.Args[2], os.Args[3]
		fmt.Fprintln(os.Stderr, serve(address, certificate, key))
		os.Exit(1)
	default:
		if programs[name] == nil {
			fmt.Fprintf(os.Stderr, "no program of the name %q is in here\n", name)
			os.Exit(1)
		}
		os.Exit(cli.Run(programs[name]()))
	}
}

// serve keeps images in memory, until it fails. By HTTP/1.1 only: that registry reads a
// blob while it holds the lock of all blobs. Two blobs on one connection of HTTP/2 share
// a window, which the one that waits for the lock can fill, and then both wait for ever.
func serve(address, certificate, key string) error {
	server := http.Server{
		Addr:              address,
		Handler:           registry.New(),
		TLSNextProto:      map[string]func(*http.Server, *tls.Conn, http.Handler){},
		ReadHeaderTimeout: time.Minute,
	}
	return server.ListenAndServeTLS(certificate, key)
}
