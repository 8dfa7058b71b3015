// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"net/http"

	"github.com/inspektor-gadget/inspektor-gadget/pkg/gadget-service/api"
	"github.com/inspektor-gadget/inspektor-gadget/pkg/k8sutil"
	"github.com/prometheus/client_golang/prometheus"
	log "github.com/sirupsen/logrus"

	"github.com/gpu-gadgets/gpu-gadgets/internal/export/listen"
	"github.com/gpu-gadgets/gpu-gadgets/internal/export/views"
)

// authorizer answers scrapes with what RBAC allows their readers; nil without --metrics-listen-authorize.
func (o *options) authorizer(values api.ParamValues) (func(prometheus.Gatherer) http.Handler, error) {
	if err := o.checkAuthorize(values); err != nil || o.authorize == "" {
		return nil, err
	}
	config, err := k8sutil.NewKubeConfig(o.kubeconfig, "gpu-exporter")
	if err != nil {
		return nil, fmt.Errorf("--metrics-listen-authorize: no cluster to review tokens: %w", err)
	}
	v, err := views.ForCluster(config, o.audience, func(text string) { log.Warn(text) })
	if err != nil {
		return nil, fmt.Errorf("--metrics-listen-authorize: %w", err)
	}
	return v.Handler, nil
}

// checkAuthorize refuses combinations in which tokens of the cluster are not used or not safe.
func (o *options) checkAuthorize(values api.ParamValues) error {
	address := values["metrics-listen"]
	switch {
	case o.authorize == "" && o.audience != "":
		return errors.New("--metrics-listen-audience needs --metrics-listen-authorize")
	case o.authorize == "":
		return nil
	case o.authorize != "kubernetes":
		return fmt.Errorf("--metrics-listen-authorize: want kubernetes, not %q", o.authorize)
	case address == "":
		return errors.New("--metrics-listen is missing: --metrics-listen-authorize is for that endpoint")
	case values["metrics-listen-token"] != "":
		return errors.New("--metrics-listen-authorize and --metrics-listen-token: a request has one token only")
	case values["metrics-listen-cert"] == "" && !listen.IsLoopback(address):
		return fmt.Errorf("--metrics-listen-authorize: tokens of the cluster would cross the network in clear text: set --metrics-listen-cert and --metrics-listen-key, or listen on a loopback address, not on %s", address)
	}
	return nil
}
